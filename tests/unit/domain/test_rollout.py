"""What follows from what is seen of a rollout."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.domain import rollout
from shared.domain.guardrail import Guardrail
from shared.domain.machine import Request
from shared.domain.rollout import RolloutObservation, RolloutStatus, SetRoute
from shared.domain.rollout_plan import RolloutPlan, StepPlan
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.domain.step_analysis import StepLook
from shared.domain.traffic import Traffic

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RAILS = (Guardrail("errors", 0.01), Guardrail("latency_p99", 2.0, relative=True))
PLAN = RolloutPlan(
    tuple(StepPlan(weight, max=timedelta(minutes=10), min_users=100) for weight in (0.1, 0.5)), max_harm=0.05, guardrails=RAILS
)
BOTH = frozenset({1, 2})


def users(count: int, rate: float) -> VariantSample:
    hits = round(count * rate)
    return VariantSample(count, hits, hits, count, hits)


def answers(sample: VariantSample, **changes: Any) -> Traffic:
    return Traffic(users=sample.users, answers=sample.answers, latency={60: sample.answers}, **changes)


def canary(step: int = 1) -> RolloutStatus:
    return RolloutStatus(state="canary", since=NOW, step=step, step_since=NOW)


def seen(**changes: object) -> RolloutObservation:
    if "samples" in changes:
        samples: Any = changes.pop("samples")
        changes["look"] = StepLook(samples, None if samples is None else (answers(samples[0]), answers(samples[1])))
    return replace(RolloutObservation(stable=1, answering=BOTH, routed=True), **changes)  # type: ignore[arg-type]


def decide(status: RolloutStatus, observation: RolloutObservation, now: datetime = NOW) -> rollout.RolloutDecision:
    return rollout.decide("o1", 2, status, observation, PLAN, now)


def route_of(decision: rollout.RolloutDecision) -> Route:
    (effect,) = decision.effects
    assert isinstance(effect, SetRoute)
    return effect.route


def test_the_first_version_goes_in_without_a_canary() -> None:
    status = RolloutStatus(state="loading", since=NOW)
    decision = decide(status, RolloutObservation(stable=None, answering=frozenset({2})))
    assert decision.next.state == "promoted"
    assert route_of(decision) == Route(2)


def test_no_user_sees_a_version_before_it_answers() -> None:
    status = RolloutStatus(state="loading", since=NOW)
    decision = decide(status, seen(answering=frozenset({1})))
    assert decision.next.state == "loading"
    assert not decision.effects


def test_a_version_that_cannot_be_loaded_never_gets_traffic() -> None:
    decision = decide(RolloutStatus(state="loading", since=NOW), seen(answering=frozenset({1}), load_error="corrupt"))
    assert decision.next.state == "rolled_back"
    assert not decision.effects


@pytest.mark.requirement("C-05")
def test_the_canary_begins_with_the_first_weight_under_the_rollouts_own_salt() -> None:
    decision = decide(RolloutStatus(state="loading", since=NOW), seen())
    assert decision.next.state == "canary"
    assert route_of(decision) == Route(1, 2, 0.1, "o1", 0)


def test_a_step_begins_only_when_every_gateway_serves_its_route() -> None:
    status = replace(canary(0), step_since=None)
    assert decide(status, seen(routed=False)).next.step_since is None
    assert decide(status, seen(routed=True)).next.step_since == NOW


def test_an_intermediate_step_passes_on_enough_users_without_harm() -> None:
    decision = decide(canary(0), seen(samples=(users(900, 0.5), users(100, 0.48))))
    assert decision.next.step == 1
    assert route_of(decision).weight == 0.5


def test_too_few_users_never_pass() -> None:
    decision = decide(canary(0), seen(samples=(users(900, 0.5), users(99, 0.9))))
    assert decision.next.step == 0
    assert not decision.effects


@pytest.mark.requirement("C-05", "G-11")
def test_a_better_candidate_is_promoted_at_the_last_step() -> None:
    decision = decide(canary(), seen(samples=(users(1500, 0.5), users(1500, 0.6))))
    assert decision.next.state == "promoted"
    assert route_of(decision) == Route(2)


@pytest.mark.requirement("C-05", "G-11")
@pytest.mark.parametrize(("step", "stable"), [(0, 3600), (1, 400)])
def test_a_worse_candidate_is_rolled_back_at_every_step(step: int, stable: int) -> None:
    decision = decide(canary(step), seen(samples=(users(stable, 0.5), users(400, 0.25))))
    assert decision.next.state == "rolled_back"
    assert route_of(decision) == Route(1)
    assert "fewer hits" in decision.next.reason


def test_inconclusive_at_the_deadline_pauses_and_never_promotes() -> None:
    observation = seen(samples=(users(300, 0.5), users(300, 0.5)))
    assert decide(canary(), observation).next.state == "canary"
    late = decide(canary(), observation, NOW + timedelta(minutes=11))
    assert late.next.state == "paused"
    assert not late.effects


@pytest.mark.parametrize("samples", [None, (VariantSample(), VariantSample()), (users(500, 0.0), users(500, 0.0))])
def test_no_data_never_promotes(samples: tuple[VariantSample, VariantSample] | None) -> None:
    for now in (NOW, NOW + timedelta(days=1)):
        decision = decide(canary(), seen(samples=samples), now)
        assert decision.next.state in ("canary", "paused")
        assert not decision.effects


def test_a_sick_stable_version_halts_instead_of_rolling_back() -> None:
    sick = decide(canary(), seen(answering=frozenset({2})))
    assert sick.next.sick_since == NOW
    decision = decide(sick.next, seen(answering=frozenset({2})), NOW + timedelta(seconds=31))
    assert decision.next.state == "paused"
    assert "halted: the stable version 1 does not answer" in decision.next.reason
    assert not decision.effects


def test_a_candidate_that_stops_answering_is_rolled_back() -> None:
    sick = decide(canary(), seen(answering=frozenset({1})))
    decision = decide(sick.next, seen(answering=frozenset({1})), NOW + timedelta(seconds=31))
    assert decision.next.state == "rolled_back"
    assert route_of(decision) == Route(1)


def test_a_server_that_comes_back_in_time_changes_nothing() -> None:
    sick = decide(canary(), seen(answering=frozenset()))
    well = decide(sick.next, seen(), NOW + timedelta(seconds=5))
    assert well.next.sick_since is None
    assert well.next.state == "canary"


@pytest.mark.requirement("C-05")
def test_a_person_pauses_resumes_promotes_and_aborts() -> None:
    paused = decide(canary(), seen(request=Request("pause", "ada", "lunch")))
    assert (paused.next.state, paused.next.reason) == ("paused", "pause by ada: lunch")
    resumed = decide(paused.next, seen(request=Request("resume", "ada")))
    assert (resumed.next.state, resumed.next.step) == ("canary", 1)
    promoted = decide(paused.next, seen(request=Request("promote", "ada")))
    assert (promoted.next.state, route_of(promoted)) == ("promoted", Route(2))
    aborted = decide(paused.next, seen(request=Request("abort", "ada")))
    assert (aborted.next.state, route_of(aborted)) == ("aborted", Route(1))


def test_a_version_that_does_not_answer_is_not_promoted_even_when_asked() -> None:
    decision = decide(canary(), seen(answering=frozenset({1}), request=Request("promote", "ada")))
    assert decision.next.state == "canary"
    assert not decision.effects
    assert "refused" in decision.next.reason


def test_no_decision_leaves_the_transition_table(subtests: pytest.Subtests) -> None:
    for state in ["pending", "loading", "canary", "paused"]:
        for verb in [None, "pause", "resume", "promote", "abort"]:
            for answering in [frozenset(), frozenset({1}), frozenset({2}), BOTH]:
                with subtests.test(state=state, verb=verb, answering=answering):
                    status = RolloutStatus(
                        state=state, since=NOW, step=0 if state in ("canary", "paused") else -1, resumes="canary", sick_since=NOW
                    )
                    request = Request(verb, "ada") if verb else None
                    for samples in (None, (users(900, 0.5), users(900, 0.2)), (users(900, 0.5), users(900, 0.8))):
                        for now in (NOW, NOW + timedelta(days=1)):
                            decision = decide(status, seen(request=request, answering=answering, samples=samples), now)
                            rollout.MACHINE.check(state, decision.next.state)
