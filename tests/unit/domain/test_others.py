"""Gates, routes, retrainers, ids: small decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.domain import retrainer
from shared.domain.gate import Gate, Verdict, judge
from shared.domain.ids import new_id
from shared.domain.machine import Request
from shared.domain.retrainer import StartRun
from shared.domain.route import Route, choose
from shared.domain.triggers import RetrainerObservation, RetrainerStatus, RetrainPlan
from tests.support.drift_readings import fell, look

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = RetrainPlan("warm", timedelta(minutes=5), drift={"psi": 0.2}, looks=1, kpi={"hit_rate": 0.1})


@pytest.mark.requirement("C-05")
def test_a_user_stays_with_the_candidate_as_the_weight_grows() -> None:
    chosen: set[int] = set()
    for weight in (0.01, 0.05, 0.25, 0.5):
        now = {user for user in range(5000) if choose(Route(1, 2, weight, "salt"), user)[1] == "candidate"}
        assert chosen <= now
        assert len(now) == pytest.approx(5000 * weight, abs=4 * (5000 * weight * (1 - weight)) ** 0.5)
        chosen = now


def test_another_rollout_draws_other_users() -> None:
    one, other = ({u for u in range(5000) if choose(Route(1, 2, 0.1, salt), u)[0] == 2} for salt in ("a", "b"))
    assert len(one & other) < len(one) / 2


COMPARISONS: list[tuple[Gate, dict[str, float], Verdict]] = [
    (Gate("auc", "min", 0.6), {"candidate.auc": 0.7}, Verdict.PASS),
    (Gate("auc", "min", 0.6), {"candidate.auc": 0.5}, Verdict.FAIL),
    (Gate("auc", "min", 0.6), {}, Verdict.INCONCLUSIVE),
    (Gate("auc", "better_than", against="popularity"), {"candidate.auc": 0.7, "popularity.auc": 0.7}, Verdict.FAIL),
    (Gate("auc", "better_than", against="popularity"), {"candidate.auc": 0.7}, Verdict.INCONCLUSIVE),
    (Gate("auc", "not_worse_than", against="serving", margin=0.1), {"candidate.auc": 0.64, "serving.auc": 0.7}, Verdict.PASS),
    (Gate("auc", "not_worse_than", against="serving"), {"candidate.auc": 0.64, "serving.auc": 0.7}, Verdict.FAIL),
    (Gate("auc", "not_worse_than", against="serving"), {"candidate.auc": 0.64}, Verdict.INCONCLUSIVE),
    (Gate("parity", "max", 1e-4, stage="verify"), {"parity": 1e-3}, Verdict.FAIL),
]


@pytest.mark.requirement("G-10")
def test_a_gate_says_what_it_compared(subtests: pytest.Subtests) -> None:
    for gate, metrics, verdict in COMPARISONS:
        with subtests.test(gate=gate, metrics=metrics, verdict=verdict):
            result = judge(gate, metrics, serving=True)
            assert result.verdict is verdict
            assert result.reason


def test_the_first_version_has_nothing_to_be_worse_than() -> None:
    assert judge(Gate("auc", "not_worse_than", against="serving"), {"candidate.auc": 0.64}, serving=False).verdict is Verdict.PASS


@pytest.mark.requirement("G-13", "C-03")
def test_a_fall_of_the_hit_rate_starts_a_full_retraining() -> None:
    first = retrainer.decide("movies", RetrainerStatus(), RetrainerObservation(serving=True, kpi=fell(0.5, 0.4)), PLAN, NOW)
    assert first.next.state == "watching", "one look is none"
    decision = retrainer.decide("movies", first.next, RetrainerObservation(serving=True, kpi=fell(0.5, 0.4, 1)), PLAN, NOW)
    assert decision.next.state == "retraining"
    (effect,) = decision.effects
    assert isinstance(effect, StartRun)
    assert effect.mode == "full"
    assert "fell by 20.0%" in effect.reason


@pytest.mark.requirement("C-03")
def test_drift_starts_a_retraining_in_the_specs_mode() -> None:
    seen = RetrainerObservation(serving=True, drift=look(genres=0.3))
    (effect,) = retrainer.decide("movies", RetrainerStatus(), seen, PLAN, NOW).effects
    assert isinstance(effect, StartRun)
    assert (effect.mode, effect.number) == ("warm", 1)


@pytest.mark.requirement("C-03")
def test_a_trigger_is_held_back_while_a_run_is_under_way_and_says_so() -> None:
    seen = RetrainerObservation(serving=True, drift=look(genres=0.3), busy="run r1 is under way")
    decision = retrainer.decide("movies", RetrainerStatus(), seen, PLAN, NOW)
    assert decision.next.state == "watching"
    assert "held back: run r1 is under way" in decision.next.reason


@pytest.mark.requirement("C-03")
def test_after_a_retraining_triggers_rest_but_a_person_may_ask() -> None:
    cooling = retrainer.decide("m", RetrainerStatus("retraining", run="r"), RetrainerObservation(ended="promoted"), PLAN, NOW).next
    seen = RetrainerObservation(serving=True, drift=look(genres=0.9))
    assert retrainer.decide("m", cooling, seen, PLAN, NOW + timedelta(minutes=4)).next.state == "cooling"
    assert retrainer.decide("m", cooling, seen, PLAN, NOW + timedelta(minutes=6)).next.state == "watching"
    asked = RetrainerObservation(serving=True, request=Request("retrain", "ada"))
    assert retrainer.decide("m", cooling, asked, PLAN, NOW).next.state == "retraining"


def test_nothing_to_retrain_while_nothing_serves() -> None:
    seen = RetrainerObservation(serving=False, drift=look(genres=0.9))
    assert retrainer.decide("m", RetrainerStatus(), seen, PLAN, NOW).next.state == "watching"


def test_ids_sort_by_time() -> None:
    ids = [new_id("r", NOW + timedelta(milliseconds=n), 1000 - n) for n in range(50)]
    assert ids == sorted(ids)
