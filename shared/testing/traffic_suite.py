"""Conformance suites of traffic in KpiSource, and of ShadowTotals; a test module provides `log` and `kpis` on one set of events,
or `mirrors`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.contracts.events import BY_ITEMS, NO_SCORES, NOTHING_LEFT, REFUSED, SERVER_AWAY, UNKNOWN_USER, Impression
from shared.domain.traffic import ShadowCounts, Traffic, UserShares
from shared.ports import EventLog, KpiSource, ShadowTotals
from shared.testing.event_suite import LATER, minute, shown


def answered(id: str, user: int = 1, bucket: int | None = 50, score: float | None = 2.0, **changes: Any) -> Impression:
    return shown(id, **({"user": user, "bucket": bucket, "score": score} | changes))


def answer_number(n: int) -> Impression:
    """Returns an answer of a variant to one of 101 users: of five successive answers three are the version's own, with scores."""
    user, fallback = n * n % 101, (None, None, None, NO_SCORES, UNKNOWN_USER)[n % 5]
    variant, version = ("stable", 1) if user % 3 else ("candidate", 2)
    bucket, score = None if fallback == UNKNOWN_USER else n % 17, None if fallback else n / 7
    return answered(f"r{n}", user, bucket, score, variant=variant, version=version, fallback=fallback)


def traffic_of(users: int, answers: int, **more: Any) -> Traffic:
    """Returns traffic, by default of users without fallback or empty answers."""
    return Traffic(users, answers, **({"fallback": UserShares(users), "empty": UserShares(users)} | more))


class TrafficSuite:
    def traffic(self, kpis: KpiSource, generation: int = 1) -> dict[str, Traffic]:
        return dict(kpis.traffic("films", generation, LATER))

    def test_nothing_was_answered_where_nobody_asked(self, log: EventLog, kpis: KpiSource) -> None:
        assert self.traffic(kpis) == {}

    def test_answers_of_each_variant_are_counted_with_their_latencies_and_scores(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered(f"s{n}", user=n // 2, bucket=50 + n % 2, score=float(n), items=(1, 2)) for n in range(5)])
        log.impressions([answered("c", variant="candidate", version=2, user=1, bucket=60, score=0.5, items=(2,))])
        assert self.traffic(kpis) == {
            "stable": traffic_of(3, 5, latency={50: 3, 51: 2}, scored=5, score_total=10.0, score_squares=30.0, looked=1, shown=2),
            "candidate": traffic_of(1, 1, latency={60: 1}, scored=1, score_total=0.5, score_squares=0.25, looked=1, shown=1),
        }

    def test_a_version_that_was_asked_in_vain_erred_and_has_no_latency(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered("a"), answered("b", user=2, bucket=99, score=None, fallback=NO_SCORES)])
        traffic = self.traffic(kpis)["stable"]
        assert (traffic.users, traffic.answers, traffic.errors, traffic.latency, traffic.scored, traffic.looked) == (2, 2, 1, {50: 1}, 1, 1)

    def test_answers_to_users_that_a_version_does_not_know_count_and_have_no_score(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered("a"), answered("b", user=2, bucket=None, score=None, fallback=UNKNOWN_USER)])
        traffic = self.traffic(kpis)["stable"]
        assert (traffic.users, traffic.answers, traffic.errors, traffic.scored, traffic.looked) == (2, 2, 0, 1, 1)

    def test_refused_requests_are_errors_of_the_version_that_they_were_assigned_to(self, log: EventLog, kpis: KpiSource) -> None:
        refused = [answered(name, user=user, bucket=None, score=None, items=(), fallback=name) for user, name in enumerate(REFUSED, 2)]
        log.impressions([answered("a"), *refused])
        traffic = self.traffic(kpis)["stable"]
        assert (traffic.users, traffic.answers, traffic.errors, traffic.latency, traffic.looked) == (3, 3, 2, {50: 1}, 1)
        assert (traffic.fallback, traffic.empty) == (UserShares(3), UserShares(3))

    def test_shares_of_fallback_and_empty_answers_are_means_over_users(self, log: EventLog, kpis: KpiSource) -> None:
        whys = {1: (None, None, NOTHING_LEFT, UNKNOWN_USER), 2: (NO_SCORES,), 3: (None, NOTHING_LEFT), 4: (BY_ITEMS, None)}
        log.impressions([answered(f"{user}-{n}", user=user, fallback=why) for user, some in whys.items() for n, why in enumerate(some)])
        traffic = self.traffic(kpis)["stable"]
        assert (traffic.fallback, traffic.empty) == (UserShares(4, 1.75, 1.3125), UserShares(4, 0.75, 0.3125))

    def test_requests_while_the_model_server_was_away_count_as_users_only(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered("a"), answered("b", score=None, fallback=SERVER_AWAY), answered("c", user=2, fallback=SERVER_AWAY)])
        traffic = self.traffic(kpis)["stable"]
        assert (traffic.users, traffic.answers, traffic.errors, traffic.fallback.users, traffic.looked) == (2, 1, 0, 1, 1)

    def test_answers_whose_latency_nobody_noted_are_answers_without_one(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a"), shown("b", user=2, fallback=NO_SCORES), answered("c", user=3)])
        traffic = self.traffic(kpis)["stable"]
        assert (traffic.answers, traffic.errors, traffic.latency, traffic.scored, traffic.looked) == (3, 1, {50: 1}, 1, 2)

    def test_an_empty_answer_has_a_latency_and_no_score(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered("a", score=None, items=(), fallback=NOTHING_LEFT)])
        assert self.traffic(kpis) == {"stable": traffic_of(1, 1, latency={50: 1}, looked=1, empty=UserShares(1, 1.0, 1.0))}

    def test_generations_recommenders_and_what_is_yet_to_come_are_apart(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered("a"), answered("b", generation=2, user=2), answered("c", recommender="books", user=3)])
        log.impressions([answered("d", user=4, at=LATER + timedelta(microseconds=1)), answered("e", user=5, at=LATER)])
        assert self.traffic(kpis)["stable"].users == self.traffic(kpis)["stable"].answers == 2
        assert self.traffic(kpis, 2)["stable"].answers == 1
        assert self.traffic(kpis, 3) == {}

    def test_of_both_variants_the_newest_answers_are_looked_at_and_of_both_as_many(self, log: EventLog, kpis: KpiSource) -> None:
        """More answers show more items, so different numbers of answers would understate the coverage of a small candidate."""
        log.impressions([answered(f"s{n}", at=minute(n), items=(n, n + 1)) for n in range(30)])
        log.impressions([answered(f"c{n}", at=minute(n), variant="candidate", version=2, items=(n % 2,)) for n in range(10)])
        traffic = self.traffic(kpis)
        assert {name: (variant.looked, variant.shown) for name, variant in traffic.items()} == {"stable": (10, 11), "candidate": (10, 2)}

    def test_a_variant_without_answers_of_its_own_hides_no_coverage_of_the_other(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered("a"), answered("b", variant="candidate", version=2, fallback=NO_SCORES, score=None)])
        assert {name: variant.looked for name, variant in self.traffic(kpis).items()} == {"stable": 1, "candidate": 0}

    def test_what_is_looked_at_has_an_end(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([answered(f"a{n}", at=minute(n / 1000), items=(n,)) for n in range(2500)])
        traffic = self.traffic(kpis)["stable"]
        assert traffic.answers == 2500
        assert 100 <= traffic.looked == traffic.shown <= 2000

    def test_sums_agree_with_a_count_by_hand(self, log: EventLog, kpis: KpiSource) -> None:
        answers = [answer_number(n) for n in range(700)]
        log.impressions(answers)
        traffic = self.traffic(kpis)
        for variant in ("stable", "candidate"):
            of_variant = [answer for answer in answers if answer.variant == variant]
            own = [answer for answer in of_variant if answer.fallback is None]
            sums = traffic[variant]
            assert sums.users == len({answer.user for answer in of_variant})
            assert (sums.answers, sums.errors) == (len(of_variant), len([answer for answer in of_variant if answer.fallback == NO_SCORES]))
            assert sums.latency == {n: len([answer for answer in own if answer.bucket == n]) for n in {answer.bucket for answer in own}}
            assert sums.scored == len(own)
            assert sums.score_total == pytest.approx(sum(answer.score or 0 for answer in own), rel=1e-12)
            assert sums.score_squares == pytest.approx(sum((answer.score or 0) ** 2 for answer in own), rel=1e-12)


EXAMPLE = ShadowCounts(7, 1, {40: 6, 41: 1}, {60: 6}, 3.25, 2)


class ShadowTotalsSuite:
    def test_of_no_shadow_nothing_is_known(self, mirrors: ShadowTotals) -> None:
        assert mirrors.total("films", 1) == ShadowCounts()

    def test_totals_are_read_back_and_add_up_over_gateways(self, mirrors: ShadowTotals) -> None:
        mirrors.add("films", 1, "gate-a", EXAMPLE)
        assert mirrors.total("films", 1) == EXAMPLE
        mirrors.add("films", 1, "gate-b", ShadowCounts(3, 0, {41: 3}, {61: 2, 60: 1}, 0.5, 10))
        assert mirrors.total("films", 1) == ShadowCounts(10, 1, {40: 6, 41: 4}, {60: 7, 61: 2}, 3.75, 12)

    def test_a_gateway_that_tells_again_replaces_what_it_told(self, mirrors: ShadowTotals) -> None:
        for mirror in (ShadowCounts(1, 0, {40: 1}, {60: 1}, 1.0, 0), EXAMPLE, EXAMPLE):
            mirrors.add("films", 1, "gate-a", mirror)
        assert mirrors.total("films", 1) == EXAMPLE

    def test_generations_and_recommenders_are_apart(self, mirrors: ShadowTotals) -> None:
        mirrors.add("films", 1, "gate-a", EXAMPLE)
        mirrors.add("films", 2, "gate-a", replace(EXAMPLE, compared=9))
        mirrors.add("books", 1, "gate-a", replace(EXAMPLE, compared=11))
        assert [mirrors.total(*key).compared for key in (("films", 1), ("films", 2), ("books", 1), ("books", 2))] == [7, 9, 11, 0]

    def test_gateways_that_tell_at_once_are_all_heard(self, mirrors: ShadowTotals) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: mirrors.add("films", 1, f"gate-{n % 4}", ShadowCounts(compared=1)), range(16)))
        assert mirrors.total("films", 1).compared == 4
