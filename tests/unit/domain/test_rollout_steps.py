"""Shadow, times of a step, guardrails, limits, and the verbs among them: one table an idea."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.contracts.codec import decode, encode
from shared.domain import rollout
from shared.domain.gate import Verdict
from shared.domain.guardrail import Guardrail
from shared.domain.machine import Request
from shared.domain.rollout import RolloutDecision, RolloutObservation, RolloutStatus, SetRoute, due
from shared.domain.rollout_plan import RolloutPlan, ShadowPlan, StepPlan, percent, spoken
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.domain.step_analysis import StepLook
from shared.domain.traffic import ShadowCounts, Traffic

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
STEPS = (
    StepPlan(0.1, max=HOUR, min=10 * MINUTE, min_users=100, min_answers=100),
    StepPlan(0.5, max=HOUR, min_users=100, min_answers=200),
)
PLAN = RolloutPlan(
    STEPS,
    max_harm=0.2,
    shadow=ShadowPlan(5 * MINUTE, min_answers=50),
    every=MINUTE,
    progress=5 * MINUTE,
    guardrails=(Guardrail("errors", 0.01), Guardrail("latency_p99", 2.0, relative=True)),
)
BOTH = frozenset({1, 2})
FAST, SLOW = 60, 80
ALIKE = ShadowCounts(200, 0, {FAST: 200}, {FAST: 200}, 150.0)


def sample(users: int, rate: float = 0.5) -> VariantSample:
    hits = round(users * rate)
    return VariantSample(users, hits, hits, users, hits, hits)


def traffic(users: int, errors: int = 0, bucket: int = FAST) -> Traffic:
    return Traffic(users=users, answers=users, errors=errors, latency={bucket: users - errors})


def look(weight: float, candidate: int = 1500, rate: float = 0.5, base: float = 0.5, **changes: Any) -> StepLook:
    stable = round(candidate * (1 - weight) / weight)
    asked = changes.pop("asked", candidate)
    return StepLook((sample(stable, base), sample(candidate, rate)), (traffic(stable), traffic(asked, **changes)))


def at(state: str, step: int = -1, **changes: Any) -> RolloutStatus:
    return RolloutStatus(state, since=NOW, step=step, step_since=NOW, **changes)


def seen(**changes: Any) -> RolloutObservation:
    return replace(RolloutObservation(stable=1, answering=BOTH, routed=True), **changes)


def decide(status: RolloutStatus, found: RolloutObservation, after: timedelta = timedelta(0), plan: RolloutPlan = PLAN) -> RolloutDecision:
    decision = rollout.decide("o1", 2, status, found, plan, NOW + after)
    rollout.MACHINE.check(status.state, decision.next.state)
    return decision


def route_of(decision: RolloutDecision) -> Route:
    (effect,) = decision.effects
    assert isinstance(effect, SetRoute)
    return effect.route


# Loading


@pytest.mark.requirement("C-05")
def test_a_version_that_answers_goes_into_its_shadow_first() -> None:
    decision = decide(RolloutStatus("loading", since=NOW), seen())
    assert decision.next.state == "shadow"
    assert route_of(decision) == Route(1, 2, 0.0, "o1", -1, shadow=True)


def test_what_does_not_load_within_progress_goes_back_and_what_has_no_stable_beside_it_pauses() -> None:
    loading = RolloutStatus("loading", since=NOW)
    for answering, end, said in (
        (frozenset({1}), "rolled_back", "version 2 did not answer on every server within 5 min"),
        (frozenset({2}), "paused", "the stable version 1 does not answer"),
    ):
        assert decide(loading, seen(answering=answering), 5 * MINUTE).next.state == "loading"
        late = decide(loading, seen(answering=answering), 6 * MINUTE)
        assert (late.next.state, said in late.next.reason, late.effects) == (end, True, ())


def test_a_first_version_needs_proof_that_it_was_held_against_its_training() -> None:
    first = seen(stable=None)
    assert decide(RolloutStatus("loading", since=NOW), first).next.state == "promoted"
    refused = decide(RolloutStatus("loading", since=NOW), replace(first, proven=False))
    assert (refused.next.state, refused.effects) == ("rolled_back", ())
    paused = RolloutStatus("paused", resumes="loading")
    asked = decide(paused, replace(first, proven=False, request=Request("promote", "ada")))
    assert (asked.next.state, asked.effects, asked.consumes_request) == ("paused", (), True)
    assert "promote by ada: refused, version 2 has no parity proof on a real server" in asked.next.reason


def test_going_back_needs_neither_shadow_nor_canary_nor_the_stable_version() -> None:
    plan = replace(PLAN, back=Request("rollback", "ada", "it smells"))
    loading = RolloutStatus("loading", since=NOW)
    assert decide(loading, seen(answering=frozenset({1})), plan=plan).next.state == "loading"
    decision = decide(loading, seen(answering=frozenset({2})), plan=plan)
    assert (decision.next.state, route_of(decision)) == ("promoted", Route(2))
    assert decision.effects[0].actor == "ada"
    assert decision.next.reason.startswith("rollback by ada: it smells")


# Shadow


SHADOWS: list[tuple[ShadowCounts | None, int, str, str]] = [
    (ALIKE, 1, "shadow", "200 requests compared"),
    (ALIKE, 5, "canary", "10% of the users from now on"),
    (replace(ALIKE, compared=20, stable={FAST: 20}, candidate={FAST: 20}), 1, "shadow", "20 of 50"),
    (replace(ALIKE, compared=20, stable={FAST: 20}, candidate={FAST: 20}), 5, "paused", "inconclusive after 5 min in the shadow"),
    (ShadowCounts(), 5, "paused", "inconclusive"),
    (replace(ALIKE, errors=100, candidate={FAST: 100}), 1, "rolled_back", "errors"),
    (replace(ALIKE, candidate={SLOW: 200}), 1, "rolled_back", "latency_p99"),
    (replace(ALIKE, errors=200, candidate={}), 5, "rolled_back", "errors"),
    (None, 1, "paused", "answers of the shadow cannot be counted: the database is away"),
]


def test_a_shadow_is_judged_by_what_it_answered(subtests: pytest.Subtests) -> None:
    for mirror, after, state, said in SHADOWS:
        with subtests.test(mirror=mirror, after=after, state=state, said=said):
            decision = decide(at("shadow"), seen(look=StepLook(mirror=mirror, fault="the database is away")), after * MINUTE)
            assert (decision.next.state, said in decision.next.reason) == (state, True), decision.next.reason
            weights = [effect.route.weight for effect in decision.effects]
            assert weights == {"canary": [0.1], "rolled_back": [0.0]}.get(state, [])
            if mirror is not None:
                assert decision.next.shadow is not None
                assert decision.next.shadow.compared == mirror.compared


SHADOW_REQUESTS: list[tuple[str, str, Route | None]] = [
    ("skip", "canary", Route(1, 2, 0.1, "o1", 0)),
    ("promote", "promoted", Route(2)),
    ("abort", "aborted", Route(1)),
    ("pause", "paused", None),
]


def test_a_person_steers_a_shadow(subtests: pytest.Subtests) -> None:
    for verb, state, route in SHADOW_REQUESTS:
        with subtests.test(verb=verb, state=state, route=route):
            decision = decide(at("shadow"), seen(request=Request(verb, "ada")))
            assert decision.next.state == state
            assert (route_of(decision) if decision.effects else None) == route


def test_an_aborted_pause_in_the_shadow_takes_the_mirror_away() -> None:
    paused = decide(at("shadow"), seen(request=Request("pause", "ada"))).next
    assert route_of(decide(paused, seen(request=Request("abort", "ada")))) == Route(1)


def test_resuming_goes_back_to_where_it_was_and_sets_its_route(subtests: pytest.Subtests) -> None:
    for state, step in [("shadow", -1), ("canary", 0), ("canary", 1)]:
        with subtests.test(state=state, step=step):
            running = decide(at(state, step), seen())
            paused = decide(running.next, seen(request=Request("pause", "ada"))).next
            resumed = decide(paused, seen(request=Request("resume", "bob"), ours=False))
            assert (resumed.next.state, resumed.next.step, resumed.next.step_since) == (state, step, None)
            expected = Route(1, 2, 0.0, "o1", -1, shadow=True) if step < 0 else Route(1, 2, STEPS[step].weight, "o1", step)
            assert (route_of(resumed), resumed.effects[0].actor) == (expected, "bob")


# The times of a step


def test_a_step_is_not_left_before_its_minimum(subtests: pytest.Subtests) -> None:
    for after, step in [(1, 0), (9, 0), (10, 1)]:
        with subtests.test(after=after, step=step):
            decision = decide(at("canary", 0), seen(look=look(0.1)), after * MINUTE)
            assert (decision.next.state, decision.next.step) == ("canary", step)
            if step == 0:
                assert "the step continues until its minimum of 10 min is over" in decision.next.reason


def test_without_enough_it_waits_and_pauses_at_its_maximum(subtests: pytest.Subtests) -> None:
    for step_look in [look(0.5, 99), look(0.5, 199), look(0.5, 40), StepLook((VariantSample(), VariantSample()), (Traffic(), Traffic()))]:
        with subtests.test(found=step_look):
            for after, state in ((59 * MINUTE, "canary"), (HOUR, "paused")):
                decision = decide(at("canary", 1), seen(look=step_look), after)
                assert (decision.next.state, decision.effects) == (state, ())


LOOK_TIMES: list[tuple[timedelta | None, timedelta, bool]] = [
    (None, timedelta(0), False),
    (None, MINUTE - timedelta(microseconds=1), False),
    (None, MINUTE, True),
    (3 * MINUTE, 4 * MINUTE - timedelta(microseconds=1), False),
    (3 * MINUTE, 4 * MINUTE, True),
    (HOUR - MINUTE / 2, HOUR - timedelta(microseconds=1), False),
    (HOUR - MINUTE / 2, HOUR, True),
    (HOUR, HOUR + MINUTE / 2, False),
]


def test_the_data_is_looked_at_every_so_often_and_when_the_time_is_over(subtests: pytest.Subtests) -> None:
    for looked, after, expected in LOOK_TIMES:
        with subtests.test(looked=looked, after=after, expected=expected):
            status = at("canary", 1, looked_at=None if looked is None else NOW + looked)
            assert due(status, PLAN, NOW + after) is expected


def test_where_nobody_is_judged_nothing_is_looked_at(subtests: pytest.Subtests) -> None:
    for status in [at("paused", 0), at("loading"), at("promoted", 1), replace(at("canary", 0), step_since=None)]:
        with subtests.test(status=status):
            assert not due(status, PLAN, NOW + 10 * HOUR)


def test_a_pass_that_did_not_look_changes_nothing() -> None:
    status = at("canary", 0, looked_at=NOW)
    for after in range(0, 600, 7):
        assert decide(status, seen(), after * MINUTE).next == status


# Verdicts


FINDINGS: list[tuple[StepLook, str, str]] = [
    (look(0.5), "promoted", "is excluded"),
    (look(0.5, rate=0.2), "rolled_back", "fewer hits"),
    (look(0.5, errors=150), "rolled_back", "errors < 1.00% is broken"),
    (look(0.5, bucket=SLOW), "rolled_back", "latency_p99 < 2x is broken"),
    (look(0.5, asked=4000), "paused", "the split of users is not as expected"),
    (look(0.5, asked=4000, rate=0.1), "paused", "the split of users is not as expected"),
    (look(0.5, asked=4000, errors=800), "rolled_back", "errors"),
    (look(0.5, rate=0.2, errors=150), "rolled_back", "errors"),
    (StepLook(fault="the database is away"), "paused", "users' events cannot be counted: the database is away"),
    (StepLook(look(0.5).samples, None, None, "no answers"), "paused", "cannot be counted: no answers"),
    (look(0.5, base=0.0, rate=0.0), "canary", "no hits to compare with"),
]


def test_each_finding_has_its_end(subtests: pytest.Subtests) -> None:
    for found, state, said in FINDINGS:
        with subtests.test(found=found, state=state, said=said):
            decision = decide(at("canary", 1), seen(look=found), MINUTE)
            assert (decision.next.state, said in decision.next.reason) == (state, True), decision.next.reason
            expected = {"promoted": [Route(2)], "rolled_back": [Route(1)]}.get(state, [])
            assert [effect.route for effect in decision.effects] == expected


def test_every_check_has_a_verdict_and_a_sentence_of_its_own() -> None:
    (report,) = decide(at("canary", 1), seen(look=look(0.5, bucket=SLOW)), MINUTE).next.reports
    assert [(check.name, check.judgement.verdict) for check in report.checks] == [
        ("split", Verdict.PASS),
        ("errors", Verdict.PASS),
        ("latency_p99", Verdict.FAIL),
    ]
    assert (report.judgement.verdict, report.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert len({check.judgement.reason for check in report.checks}) == 3


def test_a_guardrail_may_fail_so_many_looks_in_a_row() -> None:
    plan = replace(PLAN, failures=3)
    status = at("canary", 1)
    bad, good = seen(look=look(0.5, bucket=SLOW)), seen(look=look(0.5, 60))
    for found, failures in ((bad, 1), (bad, 2), (good, 0), (bad, 1), (bad, 2)):
        decision = decide(status, found, plan=plan)
        status = decision.next
        assert (status.state, status.failures, decision.effects) == ("canary", failures, ())
    assert decide(status, bad, plan=plan).next.state == "rolled_back"


def test_so_many_looks_in_a_row_without_a_verdict_pause_it() -> None:
    plan = replace(PLAN, inconclusive=3)
    status = at("canary", 0)
    few, good = seen(look=look(0.1, 60)), seen(look=look(0.1))
    for found, count in ((few, 1), (few, 2), (good, 0), (few, 1), (few, 2)):
        status = decide(status, found, plan=plan).next
        assert (status.state, status.inconclusive) == ("canary", count)
    paused = decide(status, few, plan=plan).next
    assert (paused.state, paused.inconclusive) == ("paused", 0)
    assert paused.reason.startswith("inconclusive 3 times in a row")


def test_conversion_counts_users_and_says_so() -> None:
    plan = replace(PLAN, goal="conversion")
    busy = VariantSample(500, 250.0, 200.0, 5000, 2500, 400)
    bored = VariantSample(500, 250.0, 250.0, 5000, 2500, 100)
    step_look = StepLook((busy, bored), (traffic(500), traffic(500)))
    decision = decide(at("canary", 1), seen(look=step_look), plan=plan)
    assert decision.next.state == "rolled_back"
    assert "converts fewer users: conversion 0.200 against 0.800" in decision.next.reason
    assert decide(at("canary", 1), seen(look=step_look)).next.state != "rolled_back", "by hit rate they are equal"


# Skip, and what stands in the way


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (at("canary", 1), "this is the last step; promote sends all users to version 2"),
        (at("paused", 1, resumes="canary"), "this is the last step"),
        (at("paused", -1, resumes="loading"), "not loaded yet"),
    ],
)
def test_a_skip_that_leads_nowhere_is_refused_with_what_to_do(status: RolloutStatus, said: str) -> None:
    decision = decide(status, seen(request=Request("skip", "ada")))
    assert (decision.next.state, decision.effects, decision.consumes_request) == (status.state, (), True)
    assert said in decision.next.reason
    assert decision.next.since == status.since


@pytest.mark.parametrize("status", [at("canary", 0), at("paused", 0, resumes="canary")])
def test_a_skip_goes_to_the_next_step_without_a_verdict(status: RolloutStatus) -> None:
    decision = decide(status, seen(request=Request("skip", "ada")))
    assert (decision.next.state, decision.next.step, decision.next.resumes, decision.next.step_since) == ("canary", 1, None, None)
    assert (route_of(decision), decision.effects[0].actor) == (Route(1, 2, 0.5, "o1", 1), "ada")


def test_nobody_is_skipped_to_a_version_that_does_not_answer() -> None:
    decision = decide(at("canary", 0), seen(request=Request("skip", "ada"), answering=frozenset({1})))
    assert (decision.next.step, decision.effects) == (0, ())
    assert "refused, version 2 does not answer" in decision.next.reason


@pytest.mark.parametrize(("state", "step"), [("shadow", -1), ("canary", 0)])
def test_a_route_that_stays_away_or_is_changed_pauses_it(state: str, step: int) -> None:
    waiting = replace(at(state, step), step_since=None)
    behind = seen(routed=False, missing="gateway gate-2 serves generation 3 of 4")
    assert decide(waiting, behind, 5 * MINUTE).next == waiting
    late = decide(waiting, behind, 6 * MINUTE)
    assert (late.next.state, late.next.resumes) == ("paused", state)
    assert "gateway gate-2 serves generation 3 of 4" in late.next.reason
    for found in (seen(ours=False, look=look(0.1)), seen(stable=None, serves=True)):
        changed = decide(at(state, step), found)
        assert (changed.next.state, changed.effects) == ("paused", ())


def test_what_the_stable_version_earned_before_is_kept_for_the_step_and_asked_once() -> None:
    begun = decide(replace(at("canary", 0), step_since=None), seen(base=0.3)).next
    assert (begun.base, begun.base_of) == (0.3, 0)
    resumed = replace(begun, step_since=None)
    assert decide(resumed, seen(base=0.9)).next.base == 0.3
    assert decide(replace(begun, step=1, step_since=None), seen(base=0.4)).next.base == 0.4


# What was kept by an earlier release


def test_a_status_of_an_earlier_release_is_read_and_goes_on() -> None:
    judged = {"verdict": "pass", "reason": "no evidence of harm", "lift": 0.1, "lower": -0.2, "upper": 0.4}
    users = {"users": 200, "total": 50.0, "squares": 40.0, "answers": 300, "hits": 80}
    report = {"step": 0, "weight": 0.1, "since": "2026-01-01T00:00:00Z", "stable": users, "candidate": users, "judgement": judged}
    old = {
        "state": "canary",
        "reason": "10% of the users",
        "since": "2026-01-01T00:00:00Z",
        "step": 0,
        "step_since": "2026-01-01T00:00:00Z",
        "resumes": None,
        "sick_since": None,
        "reports": [report],
    }
    status = decode(RolloutStatus, old)
    assert due(status, PLAN, NOW + MINUTE)
    following = decide(status, seen(look=look(0.1)), 10 * MINUTE).next
    assert (following.state, following.step, len(following.reports)) == ("canary", 1, 1)
    assert decode(RolloutStatus, encode(RolloutStatus, following)) == following


def test_an_intent_of_an_earlier_release_is_carried_out() -> None:
    route = {"stable": 1, "candidate": 2, "weight": 0.1, "salt": "o1", "step": 0, "generation": 0, "since": None}
    effect = decode(SetRoute, {"route": route, "actor": "eyas", "reason": "a step", "kind": "set_route"})
    assert effect.route == Route(1, 2, 0.1, "o1", 0)


def test_shares_are_said_exactly(subtests: pytest.Subtests) -> None:
    for share, said in [(0.005, "0.5%"), (0.07, "7%"), (0.5, "50%"), (0.001, "0.1%")]:
        with subtests.test(share=share, said=said):
            assert percent(share) == said


def test_spans_are_said_in_the_unit_that_keeps_them(subtests: pytest.Subtests) -> None:
    for span, said in [(90, "90 s"), (300, "5 min"), (7200, "2 h"), (604800, "7 d"), (0.5, "0.5 s")]:
        with subtests.test(span=span, said=said):
            assert spoken(timedelta(seconds=span)) == said
