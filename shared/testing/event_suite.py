"""Conformance suites of EventLog and KpiSource; a test module provides `log` and `kpis` on one set of events."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.events import (
    BY_ITEMS,
    FAILED,
    FRONT_END,
    NO_SCORES,
    NOTHING_LEFT,
    OVERLOADED,
    REFUSED,
    SERVER_AWAY,
    UNKNOWN_USER,
    Impression,
    Interaction,
)
from shared.domain.coverage_novelty import ItemShowings
from shared.domain.earned import AnswerGroup, AnswerOutcomes, total
from shared.domain.sequential_test import VariantSample
from shared.ports import EmptyAnswers, EventLog, HitRate, IngestResult, KpiSource

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
ATTRIBUTION = timedelta(minutes=30)
WINDOW = timedelta(minutes=60)
LATER = T0 + timedelta(days=1)
LARGEST = 2**63 - 1


def minute(n: float) -> datetime:
    return T0 + timedelta(minutes=n)


def shown(request_id: str, at: datetime = T0, **changes: Any) -> Impression:
    values: dict[str, Any] = {
        "request_id": request_id,
        "recommender": "films",
        "user": 1,
        "version": 1,
        "variant": "stable",
        "generation": 1,
        "step": -1,
        "items": (10, 11, 12),
        "at": at,
    }
    return Impression(**(values | changes))


def did(item: int = 10, at: datetime = T0, **changes: Any) -> Interaction:
    return Interaction(**({"recommender": "films", "user": 1, "item": item, "at": at} | changes))


def like(log: EventLog, *interactions: Interaction) -> int | None:
    """Stores positives; returns how many answers became hits."""
    return take(log, *interactions).hits


def take(log: EventLog, *interactions: Interaction) -> IngestResult:
    return log.interactions(interactions, [True] * len(interactions), ATTRIBUTION)


def rate(kpis: KpiSource, since: datetime = T0, until: datetime = LATER, attribution: timedelta = ATTRIBUTION, version: int = 1) -> HitRate:
    return kpis.hit_rate("films", version, since, until, attribution)


class EventLogSuite:
    def test_a_positive_that_names_its_answer_is_a_hit_of_that_answer(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a", version=1), shown("b", minute(1), version=2)])
        assert like(log, did(11, minute(2), request_id="a")) == 1
        assert (rate(kpis, version=1), rate(kpis, version=2)) == (HitRate(1, 1), HitRate(1, 0))

    @pytest.mark.parametrize("wrong", [{"user": 2}, {"recommender": "books"}, {"item": 99}, {"request_id": "z", "item": 99}])
    def test_an_answer_named_in_error_gets_no_hit(self, log: EventLog, kpis: KpiSource, wrong: dict[str, Any]) -> None:
        log.impressions([shown("a")])
        assert like(log, Interaction(**(did(at=minute(1), request_id="a").model_dump() | wrong))) == 0
        assert rate(kpis) == HitRate(1, 0)

    def test_a_wrong_name_still_leaves_the_user_and_the_item(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a", items=(10,)), shown("b", minute(1), items=(20,), version=2)])
        assert like(log, did(20, minute(2), request_id="a")) == 1
        assert (rate(kpis, version=1).hits, rate(kpis, version=2).hits) == (0, 1)

    def test_without_a_name_the_newest_answer_that_showed_the_item_gets_the_hit(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions(
            [
                shown("a", minute(0), version=1),
                shown("b", minute(5), version=2),
                shown("c", minute(6), version=3, items=(77,)),
                shown("d", minute(7), version=4, user=2),
                shown("e", minute(9), version=5),
            ]
        )
        assert like(log, did(10, minute(8))) == 1
        assert [rate(kpis, version=n).hits for n in (1, 2, 3, 4, 5)] == [0, 1, 0, 0, 0]

    def test_without_a_name_nothing_older_than_the_attribution_counts(self, log: EventLog) -> None:
        log.impressions([shown("a")])
        assert like(log, did(at=minute(30) + timedelta(microseconds=1))) == 0
        assert like(log, did(at=minute(30))) == 1

    def test_an_answer_is_hit_once_however_much_of_it_is_liked(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a")])
        assert like(log, did(10, minute(1)), did(11, minute(2), request_id="a")) == 1
        assert like(log, did(12, minute(3))) == 0
        assert rate(kpis) == HitRate(1, 1)

    def test_the_earliest_positive_is_the_hit_in_whatever_order_they_arrive(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a")])
        like(log, did(10, minute(20)), did(11, minute(2)), did(12, minute(10)))
        assert rate(kpis, attribution=timedelta(minutes=2)).hits == 1
        assert rate(kpis, attribution=timedelta(minutes=1)).hits == 0

    def test_a_late_positive_that_names_its_answer_counts_for_who_looks_that_far(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a")])
        assert like(log, did(at=minute(50), request_id="a")) == 0
        assert rate(kpis).hits == 0
        assert rate(kpis, attribution=timedelta(minutes=50)).hits == 1
        assert like(log, did(at=minute(20), request_id="a")) == 1
        assert rate(kpis).hits == 1

    def test_what_is_not_positive_is_kept_and_hits_nothing(self, log: EventLog, kpis: KpiSource, tmp_path: Path) -> None:
        log.impressions([shown("a")])
        assert log.interactions([did(value=1.0, at=minute(1)), did(11, minute(2), value=5.0)], [False, True], ATTRIBUTION).hits == 1
        assert log.seen_items("films", [1]) == {1: {11: minute(2)}}
        assert log.export("films", None, LATER, tmp_path / "events.csv") == 2

    def test_an_impression_that_comes_twice_is_left_as_it_is(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a", version=1), shown("a", version=2)])
        like(log, did(at=minute(1)))
        log.impressions([shown("a", version=3), shown("b", minute(2), version=3)])
        assert [rate(kpis, version=n) for n in (1, 2, 3)] == [HitRate(1, 1), HitRate(0, 0), HitRate(1, 0)]

    def test_nothing_is_taken_in_when_there_is_nothing(self, log: EventLog) -> None:
        log.impressions([])
        assert log.interactions([], [], ATTRIBUTION) == IngestResult()

    def test_a_call_is_taken_in_whole_or_not_at_all(self, log: EventLog, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="zip"):
            log.interactions([did(10), did(11)], [True], ATTRIBUTION)
        with pytest.raises(Exception, match="time"):
            like(log, did(10), Interaction(recommender="films", user=1, item=11))
        assert log.export("films", None, LATER, tmp_path / "events.csv") == 0

    def test_keys_may_be_as_large_as_the_contract_says(self, log: EventLog) -> None:
        log.impressions([shown("a", user=LARGEST, items=(-LARGEST - 1, LARGEST))])
        assert like(log, did(-LARGEST - 1, minute(1), user=LARGEST)) == 1
        assert log.seen_items("films", [LARGEST]) == {LARGEST: {-LARGEST - 1: minute(1)}}

    def test_seen_holds_the_newest_items_of_each_user_and_when(self, log: EventLog) -> None:
        like(log, did(10, minute(3)), did(11, minute(1)), did(12, minute(2)), did(13, minute(9), user=2), did(11, minute(4)))
        assert log.seen_items("films", [1]) == {1: {10: minute(3), 11: minute(4), 12: minute(2)}}
        assert log.seen_items("films", [1, 3, 2, 1]) == {1: {10: minute(3), 11: minute(4), 12: minute(2)}, 2: {13: minute(9)}}
        assert log.seen_items("films", [2, 1], limit=2) == {1: {10: minute(3), 11: minute(4)}, 2: {13: minute(9)}}
        assert log.seen_items("books", [1]) == {}
        assert log.seen_items("films", []) == {}

    def test_seen_looks_back_as_far_as_it_is_asked_to(self, log: EventLog) -> None:
        like(log, did(10, minute(3)), did(11, minute(1)), did(11, minute(4)), did(12, minute(2)))
        assert log.seen_items("films", [1], minute(3)) == {1: {10: minute(3), 11: minute(4)}}
        assert log.seen_items("films", [1], minute(3) + timedelta(microseconds=1)) == {1: {11: minute(4)}}
        assert log.seen_items("films", [1], LATER) == {}

    def test_the_export_is_a_file_of_a_stretch_of_time_the_oldest_first(self, log: EventLog, tmp_path: Path) -> None:
        log.interactions(
            [
                did(12, minute(2) + timedelta(microseconds=5), value=4.5, kind="rating"),
                did(11, minute(1), user_id="u", item_id="é"),
                did(10, minute(0), value=-1e-7),
                did(13, minute(3)),
                did(14, minute(1), recommender="books"),
            ],
            [True] * 5,
            ATTRIBUTION,
        )
        path = tmp_path / "events.csv"
        assert log.export("films", None, minute(3), path) == 3
        base, head = int(T0.timestamp()), "user,item,value,time,kind,user_id,item_id\n"
        assert path.read_text() == f"{head}1,10,-1e-07,{base},,,\n1,11,,{base + 60},,u,é\n1,12,4.5,{base + 120}.000005,rating,,\n"
        assert log.export("films", minute(1), minute(2), path) == 1
        assert path.read_text() == f"{head}1,11,,{base + 60},,u,é\n"
        assert log.export("music", None, LATER, path) == 0
        assert path.read_text() == head
        assert [file.name for file in tmp_path.glob("*events*")] == ["events.csv"]

    def test_events_of_a_stretch_of_time_are_counted_up_to_a_limit(self, log: EventLog) -> None:
        like(log, *(did(n, minute(n)) for n in range(5)), did(at=minute(1), recommender="books"))
        log.interactions([did(9, minute(1), value=1.0)], [False], ATTRIBUTION)
        assert log.count("films", T0, LATER, 100) == 6
        assert log.count("films", minute(1), minute(4), 100) == 4
        assert log.count("films", T0, LATER, 3) == 3
        assert log.count("films", minute(5), LATER, 100) == 0
        assert log.count("music", T0, LATER, 100) == 0

    def test_an_event_with_an_id_counts_once_however_often_it_comes(self, log: EventLog, kpis: KpiSource, tmp_path: Path) -> None:
        log.impressions([shown("a"), shown("b", recommender="books")])
        event, other = did(at=minute(1), id="e1", request_id="a"), did(11, minute(2), id="e2")
        assert take(log, event, other, event) == IngestResult(2, 1, 0, 1)
        assert take(log, other, event.model_copy(update={"at": minute(9)})) == IngestResult(0, 2, 0, 0)
        assert take(log, event.model_copy(update={"recommender": "books", "request_id": "b"})) == IngestResult(1, 0, 0, 1)
        assert take(log, did(at=minute(3)), did(at=minute(3))).new == 2
        assert log.export("films", None, LATER, tmp_path / "events.csv") == 4

    def test_of_two_events_with_one_id_the_first_counts_and_the_other_is_told(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a"), shown("b", user=2)])
        event = did(at=minute(1), id="e", value=5.0, revenue=1.5, kind="rating")
        take(log, event)
        others: list[dict[str, Any]] = [
            {"user": 2},
            {"item": 11},
            {"value": 4.0},
            {"value": None},
            {"revenue": 1.6},
            {"kind": "click"},
            {"request_id": "b"},
        ]
        assert take(log, *(event.model_copy(update=change) for change in others)) == IngestResult(0, 7, 7, 0)
        assert take(log, did(id="f", at=minute(1)), did(12, id="f", at=minute(1))) == IngestResult(1, 1, 1, 0)
        assert rate(kpis) == HitRate(2, 1)

    def test_a_positive_that_comes_before_its_answer_is_its_hit_when_it_comes(self, log: EventLog, kpis: KpiSource) -> None:
        assert like(log, did(10, minute(1)), did(11, minute(2), user=2, request_id="b"), did(12, minute(99), user=3)) == 0
        log.impressions([shown("a"), shown("b", minute(3), user=2), shown("c", user=3), shown("d", user=1, items=(77,))])
        assert rate(kpis) == HitRate(4, 2)
        assert rate(kpis, attribution=timedelta(0)) == HitRate(4, 1)

    def test_a_newer_answer_that_comes_late_takes_over_and_leaves_the_older_one_what_it_earned_itself(
        self, log: EventLog, kpis: KpiSource
    ) -> None:
        log.impressions([shown("a"), shown("b", user=2, version=2)])
        like(log, did(10, minute(5)), did(11, minute(9), request_id="a"), did(10, minute(5), user=2))
        log.impressions([shown("c", minute(4), version=3), shown("d", minute(4), user=2, version=4)])
        assert [rate(kpis, version=n).hits for n in (1, 2, 3, 4)] == [1, 0, 1, 1]
        assert rate(kpis, attribution=timedelta(minutes=8)).hits == 0
        assert rate(kpis, attribution=timedelta(minutes=1), version=3).hits == 1

    def test_a_named_answer_that_comes_late_takes_over_from_the_newest_one(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a", minute(4))])
        like(log, did(10, minute(5), request_id="b"))
        log.impressions([shown("b", version=2), shown("z", version=3, user=2)])
        assert [rate(kpis, version=n).hits for n in (1, 2, 3)] == [0, 1, 0]

    def test_events_from_many_threads_are_all_there_and_hit_once(self, log: EventLog, kpis: KpiSource, tmp_path: Path) -> None:
        log.impressions([shown(f"r{n}", minute(n)) for n in range(20)])

        def send(thread: int) -> int:
            log.impressions([shown(f"t{thread}-{n}", minute(100 + n), user=thread + 2) for n in range(20)])
            return sum(like(log, did(10, minute(n), request_id=f"r{n}")) or 0 for n in range(20))

        with ThreadPoolExecutor(8) as pool:
            new = sum(pool.map(send, range(8)))
        assert new == 20
        assert rate(kpis) == HitRate(180, 20)
        assert log.export("films", None, LATER, tmp_path / "events.csv") == 160


class KpiSourceSuite:
    def samples(self, kpis: KpiSource, now: datetime, generation: int = 1) -> dict[str, VariantSample]:
        return dict(kpis.samples("films", generation, WINDOW, ATTRIBUTION, now))

    def test_each_user_is_one_observation(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown(f"a{n}", minute(n)) for n in range(4)])
        log.impressions([shown(f"b{n}", minute(n), user=2) for n in range(2)])
        log.impressions([shown("c", user=3, variant="candidate", version=2)])
        like(log, *(did(at=minute(5), request_id=id) for id in ("a0", "a1", "a2")), did(at=minute(5), user=2, request_id="b1"))
        assert self.samples(kpis, LATER) == {
            "stable": VariantSample(2, 1.25, 0.8125, 6, 4, 2),
            "candidate": VariantSample(1, 0.0, 0.0, 1, 0),
        }

    def test_a_user_counts_when_window_and_attribution_have_passed(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a"), shown("b", minute(1), user=2)])
        assert self.samples(kpis, minute(90) - timedelta(microseconds=1)) == {}
        assert self.samples(kpis, minute(90))["stable"].users == 1
        assert self.samples(kpis, minute(91))["stable"].users == 2

    def test_only_answers_within_the_users_own_window_count(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a", minute(10)), shown("b", minute(70)), shown("c", minute(70) + timedelta(microseconds=1))])
        like(log, did(at=minute(71), request_id="c"))
        assert self.samples(kpis, LATER) == {"stable": VariantSample(1, 0.0, 0.0, 2, 0)}

    def test_generations_and_recommenders_are_apart(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a"), shown("b", generation=2), shown("c", generation=2, user=2), shown("d", recommender="books")])
        assert self.samples(kpis, LATER)["stable"].users == 1
        assert self.samples(kpis, LATER, generation=2)["stable"].users == 2
        assert self.samples(kpis, LATER, generation=3) == {}

    @pytest.mark.requirement("U-07")
    def test_every_request_counts_whatever_its_answer_was(self, log: EventLog, kpis: KpiSource) -> None:
        """The known users depend on the version: leaving out answers to unknown users would compare different users of the two
        versions."""
        whys = (UNKNOWN_USER, BY_ITEMS, NO_SCORES, NOTHING_LEFT, OVERLOADED, FAILED, None)
        log.impressions([shown(f"a{n}", user=n, fallback=why) for n, why in enumerate(whys)])
        like(log, did(at=minute(1), user=0, request_id="a0"))
        assert self.samples(kpis, LATER) == {"stable": VariantSample(7, 1.0, 1.0, 7, 1, 1)}

    def test_requests_while_no_model_server_answered_do_not_count(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a", fallback=SERVER_AWAY), shown("b", minute(50)), shown("c", user=2, fallback=SERVER_AWAY)])
        like(log, did(at=minute(1), request_id="a"))
        assert self.samples(kpis, minute(139)) == {}
        assert self.samples(kpis, minute(140)) == {"stable": VariantSample(1, 0.0, 0.0, 1, 0)}

    def test_a_refused_request_is_no_answer_of_its_version(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a"), *(shown(why, items=(), fallback=why) for why in REFUSED)])
        assert rate(kpis) == HitRate(1, 0)
        assert kpis.earned("films", 1, T0, LATER, ATTRIBUTION, ()).answers == 1
        assert kpis.showings("films", 1, T0, LATER, 10).answers == 1

    def test_empty_answers_are_counted_among_the_answers_of_users(self, log: EventLog, kpis: KpiSource) -> None:
        reasons = (None, NOTHING_LEFT, NOTHING_LEFT, UNKNOWN_USER, SERVER_AWAY, *REFUSED, FRONT_END)
        log.impressions([shown(f"a{n}", minute(1), fallback=reason) for n, reason in enumerate(reasons)])
        log.impressions([shown("other version", minute(1), version=2, fallback=NOTHING_LEFT)])
        log.impressions([shown("other", minute(1), recommender="books", fallback=NOTHING_LEFT)])
        assert kpis.empty("films", {1}, minute(1), minute(2)) == EmptyAnswers(5, 2)
        assert kpis.empty("films", {1, 2}, minute(1), minute(2)) == EmptyAnswers(6, 3)
        assert kpis.empty("films", {1, 2}, minute(2), minute(9)) == kpis.empty("films", (), T0, LATER) == EmptyAnswers(0, 0)

    def test_a_hit_that_came_too_late_is_none(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a"), shown("b", minute(1))])
        like(log, did(at=minute(30), request_id="a"), did(at=minute(31) + timedelta(microseconds=1), request_id="b"))
        assert self.samples(kpis, LATER)["stable"] == VariantSample(1, 0.5, 0.25, 2, 1, 1)

    @pytest.mark.requirement("G-13")
    def test_the_hit_rate_of_a_version_counts_the_answers_of_a_stretch_of_time(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown(f"r{n}", minute(n), version=1 + n % 2) for n in range(10)])
        like(log, *(did(at=minute(11), request_id=f"r{n}") for n in (2, 3, 8)))
        assert rate(kpis, minute(2), minute(8)) == HitRate(3, 1)
        assert rate(kpis, minute(2), minute(8), version=2) == HitRate(3, 1)
        assert rate(kpis, minute(2), minute(9)) == HitRate(4, 2)
        assert rate(kpis, version=3) == HitRate(0, 0)

    @pytest.mark.requirement("G-13")
    def test_what_a_version_earned_is_counted_by_kind_and_by_place(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown(f"r{n}", minute(n), items=(10, 11, 12)[: 3 - n % 2], user=n) for n in range(6)])
        log.impressions([shown("other", user=0, version=2, items=(50,)), shown("books", recommender="books")])
        buy = [did(11, minute(9), user=n, request_id=f"r{n}", kind="purchase", revenue=0.1, id=f"p{n}") for n in (0, 1, 2)]
        late = did(10, minute(40), user=0, request_id="r0", kind="purchase", revenue=5.0)
        clicks = [did(item, minute(8), user=n, kind="click") for n, item in ((0, 10), (0, 10), (1, 10), (4, 12), (5, 12), (0, 50))]
        like(log, *buy, late, *clicks)
        like(log, buy[1], did(10, minute(9), user=3, revenue=-0.3))
        earned = kpis.earned("films", 1, T0, minute(5), ATTRIBUTION, {"purchase", "subscription"})
        kinds = {"purchase": 3, "click": 4}
        assert earned == AnswerOutcomes(5, 5, 3, 0, kinds, {3: 3, 2: 2}, {0: 3, 1: 3, 2: 1})
        assert earned.click_rates() == {0: 3 / 5, 1: 3 / 5, 2: 1 / 3}
        assert (earned.hit_rate, earned.conversion, earned.engagement({"purchase": 3.0})) == (1.0, 0.6, 13 / 5)
        assert kpis.earned("films", 1, T0, LATER, timedelta(days=1), {"click"}).revenue == 5_000_000
        assert kpis.earned("films", 1, minute(3), minute(4), ATTRIBUTION, ()).conversions == 0
        assert kpis.earned("films", 9, T0, LATER, ATTRIBUTION, {"purchase"}) == AnswerOutcomes()

    @pytest.mark.requirement("G-13")
    def test_what_a_version_earned_is_counted_apart_by_variant_fallback_and_slices(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions(
            [
                shown("a", slices=("germany", "young")),
                shown("b", minute(1), slices=("germany",), user=2),
                shown("c", minute(2), variant="candidate", user=3),
                shown("d", minute(3), fallback="unknown user", user=4),
                shown("e", minute(4), slices=("germany",), user=5),
                shown("f", minute(5), version=2),
            ]
        )
        like(log, did(10, minute(6), request_id="a", kind="purchase", revenue=1.5), did(11, minute(6), user=5), did(11, minute(6), user=3))
        parts = kpis.parts("films", 1, T0, LATER, ATTRIBUTION, {"purchase"})
        assert parts == {
            AnswerGroup("stable", None, ("germany", "young")): AnswerOutcomes(1, 1, 1, 1_500_000, {"purchase": 1}, {3: 1}, {0: 1}),
            AnswerGroup("stable", None, ("germany",)): AnswerOutcomes(2, 1, 0, 0, {}, {3: 2}, {1: 1}),
            AnswerGroup("candidate"): AnswerOutcomes(1, 1, 0, 0, {}, {3: 1}, {1: 1}),
            AnswerGroup("stable", "unknown user"): AnswerOutcomes(1, 0, 0, 0, {}, {3: 1}, {}),
        }
        assert total(parts.values()) == kpis.earned("films", 1, T0, LATER, ATTRIBUTION, {"purchase"})
        assert kpis.parts("films", 3, T0, LATER, ATTRIBUTION, ()) == {}

    @pytest.mark.requirement("G-13")
    def test_what_a_version_earned_is_counted_apart_by_step(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown(f"r{n}", minute(n), user=n) for n in (0, 4, 5, 9, 20)])
        like(log, did(10, minute(5), user=4), did(10, minute(21), user=20))
        every = timedelta(minutes=5)
        steps = kpis.steps("films", 1, T0, minute(20), every, ATTRIBUTION, ())
        assert {step: (earned.answers, earned.hits) for step, earned in steps.items()} == {0: (2, 1), 1: (2, 0)}
        steps = kpis.steps("films", 1, minute(-1), LATER, every, ATTRIBUTION, ())
        assert {step: (earned.answers, earned.hits) for step, earned in steps.items()} == {0: (1, 0), 1: (2, 1), 2: (1, 0), 4: (1, 1)}

    @pytest.mark.requirement("G-13")
    def test_what_the_newest_answers_showed_is_counted_by_item(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown(f"r{n}", minute(n // 2), items=(n, 9, n), user=n) for n in range(6)])
        assert kpis.showings("films", 1, T0, LATER, 2) == ItemShowings(2, {4: 1, 5: 1, 9: 2})
        assert kpis.showings("films", 1, T0, minute(2), 3) == ItemShowings(3, {1: 1, 2: 1, 3: 1, 9: 3}), (
            "for equal times the greater request id counts"
        )
        assert kpis.showings("films", 1, minute(1), minute(2), 100) == ItemShowings(2, {2: 1, 3: 1, 9: 2})
        assert kpis.showings("films", 2, T0, LATER, 2) == ItemShowings()

    @pytest.mark.requirement("G-13")
    def test_the_newest_positives_are_counted_by_item(self, log: EventLog, kpis: KpiSource) -> None:
        like(log, *(did(n % 3, minute(n)) for n in range(7)), did(1, minute(3), recommender="books"))
        log.interactions([did(2, minute(3), value=1.0)], [False], ATTRIBUTION)
        assert kpis.liked("films", LATER, 100) == {0: 3, 1: 2, 2: 2}
        assert kpis.liked("films", minute(6), 2) == {1: 1, 2: 1}
        assert kpis.liked("music", LATER, 100) == {}

    def test_much_revenue_is_summed_exactly(self, log: EventLog, kpis: KpiSource) -> None:
        log.impressions([shown("a")])
        like(log, *(did(10, minute(1), revenue=sign * 99_999_999.123457) for sign in [1] * 300 + [-1] * 99))
        assert kpis.earned("films", 1, T0, LATER, ATTRIBUTION, ()).revenue == 201 * 99_999_999_123_457

    def test_sums_agree_with_a_count_by_hand(self, log: EventLog, kpis: KpiSource) -> None:
        """A hundred users with a fixed, uneven pattern of answers, fallbacks and hits, counted in plain Python."""
        impressions = [
            shown(f"r{n}", minute(n * 37 % 151), user=n * n % 101, variant="candidate" if n * n % 101 % 3 == 0 else "stable")
            for n in range(1500)
        ]
        whys = {0: SERVER_AWAY, 1: UNKNOWN_USER, 2: OVERLOADED}
        impressions = [impression.model_copy(update={"fallback": whys.get(n % 11)}) for n, impression in enumerate(impressions)]
        liked = {f"r{n}": timedelta(minutes=n * 13 % 47) for n in range(0, 1500, 4)}
        reactions = [(impression, liked[impression.request_id]) for impression in impressions if impression.request_id in liked]
        log.impressions(impressions)
        like(
            log, *(did(at=impression.at + delay, user=impression.user, request_id=impression.request_id) for impression, delay in reactions)
        )
        now = minute(190)
        expected = _by_hand(impressions, liked, now)
        samples = self.samples(kpis, now)
        assert samples.keys() == expected.keys() == {"stable", "candidate"}
        for variant, sample in expected.items():
            counts = [(side.users, side.answers, side.hits, side.converted) for side in (samples[variant], sample)]
            assert counts[0] == counts[1]
            assert samples[variant].total == pytest.approx(sample.total, rel=1e-12)
            assert samples[variant].squares == pytest.approx(sample.squares, rel=1e-12)
            assert 0 < sample.users < 101


def _by_hand(impressions: list[Impression], liked: dict[str, timedelta], now: datetime) -> dict[str, VariantSample]:
    users: dict[tuple[str, int], list[Impression]] = {}
    for impression in impressions:
        if impression.fallback != SERVER_AWAY:
            users.setdefault((impression.variant, impression.user), []).append(impression)
    samples: dict[str, VariantSample] = {}
    for (variant, _), answers in users.items():
        first = min(answer.at for answer in answers)
        if first + WINDOW + ATTRIBUTION > now:
            continue
        counted = [answer for answer in answers if answer.at <= first + WINDOW]
        hits = sum(liked.get(answer.request_id, ATTRIBUTION * 2) <= ATTRIBUTION for answer in counted)
        value, so_far = hits / len(counted), samples.get(variant, VariantSample())
        samples[variant] = VariantSample(
            so_far.users + 1,
            so_far.total + value,
            so_far.squares + value * value,
            so_far.answers + len(counted),
            so_far.hits + hits,
            so_far.converted + (hits > 0),
        )
    return samples
