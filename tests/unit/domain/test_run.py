"""What follows from what is seen of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain import run
from shared.domain.gate import Gate, Verdict
from shared.domain.machine import Request
from shared.domain.run import (
    Job,
    Published,
    RegisterVersion,
    RunObservation,
    RunPlan,
    RunStatus,
    StartStage,
    StopStage,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = RunPlan(
    (Gate("hr@10", "better_than", against="popularity"), Gate("parity", "max", 1e-4, stage="verify")),
    dict.fromkeys(run.STAGES, timedelta(hours=1)),
)
GOOD = {"candidate.hr@10": 0.3, "popularity.hr@10": 0.2, "parity": 1e-6}


def at(state: str, attempt: int = 1) -> RunStatus:
    return RunStatus(state=state, attempt=attempt, attempt_since=NOW)


def decide(status: RunStatus, seen: RunObservation, now: datetime = NOW) -> run.RunDecision:
    return run.decide("r1", status, seen, PLAN, now)


def test_a_run_goes_through_every_stage_once_and_registers() -> None:
    decision = decide(RunStatus(), RunObservation())
    started = []
    while not run.MACHINE.terminal(decision.next.state):
        started += [effect for effect in decision.effects if isinstance(effect, StartStage)]
        decision = decide(decision.next, RunObservation(published=Published(GOOD)))
    assert [effect.attempt for effect in started] == [f"r1-{stage}-1" for stage in run.STAGES]
    assert decision.next.state == "registered"
    assert decision.effects == (RegisterVersion(),)
    assert [done.stage for done in decision.next.stages] == list(run.STAGES)


def test_a_run_waits_for_the_run_before_it() -> None:
    decision = decide(RunStatus(), RunObservation(blocked_by="r0"))
    assert decision.next.state == "pending"
    assert "r0" in decision.next.reason
    assert not decision.effects


@pytest.mark.requirement("G-10")
def test_a_failed_gate_rejects_with_its_reason() -> None:
    decision = decide(at("evaluate"), RunObservation(published=Published({**GOOD, "candidate.hr@10": 0.1})))
    assert decision.next.state == "rejected"
    assert "hr@10 is 0.1, popularity's is 0.2" in decision.next.reason
    assert not decision.effects


@pytest.mark.requirement("G-10")
def test_a_metric_that_was_not_measured_rejects() -> None:
    decision = decide(at("evaluate"), RunObservation(published=Published({})))
    assert decision.next.state == "rejected"
    assert decision.next.gates[0].verdict is Verdict.INCONCLUSIVE


@pytest.mark.requirement("C-04")
def test_a_served_unit_that_differs_from_training_is_rejected() -> None:
    decision = decide(at("verify"), RunObservation(published=Published({**GOOD, "parity": 0.5})))
    assert decision.next.state == "rejected"
    assert "parity is 0.5 > 0.0001" in decision.next.reason


def test_refused_data_fails_at_once_with_the_reason() -> None:
    seen = RunObservation(published=Published({}, failure="ratings.parquet: column userId has 3 nulls"))
    decision = decide(at("etl"), seen)
    assert decision.next.state == "failed"
    assert decision.next.reason == "etl: ratings.parquet: column userId has 3 nulls"


@pytest.mark.parametrize("job", [None, Job("lost"), Job("failed", "exit code 1: boom"), Job("succeeded")])
def test_a_stage_that_ended_without_publishing_is_tried_again_as_a_new_attempt(job: Job | None) -> None:
    decision = decide(at("train"), RunObservation(job=job))
    assert decision.next.state == "train"
    assert decision.effects == (StartStage("train", "r1-train-2"),)


def test_after_three_faults_the_run_fails_and_says_why() -> None:
    status = at("train")
    for _ in range(2):
        status = decide(status, RunObservation(job=Job("failed", "killed by signal 9"))).next
        assert status.state == "train"
    decision = decide(status, RunObservation(job=Job("failed", "killed by signal 9")))
    assert decision.next.state == "failed"
    assert decision.next.reason == "train, attempt 3: killed by signal 9; gave up after 3 faults"


def test_restarts_of_the_platform_are_no_fault_of_the_stage() -> None:
    status = at("train")
    for _ in range(run.MAX_LOST - 1):
        status = decide(status, RunObservation(job=Job("lost"))).next
        assert (status.state, status.faults) == ("train", 0)
    last = decide(status, RunObservation(job=Job("lost"))).next
    assert last.state == "failed"
    assert "lost attempts" in last.reason


def test_a_new_stage_begins_without_faults() -> None:
    status = decide(at("train"), RunObservation(job=Job("failed"))).next
    assert status.faults == 1
    assert decide(status, RunObservation(published=Published(GOOD))).next.faults == 0


def test_a_stage_that_runs_is_left_alone() -> None:
    status = at("train")
    decision = decide(status, RunObservation(job=Job("running")), NOW + timedelta(minutes=59))
    assert decision.next == status
    assert not decision.effects


def test_a_stage_over_its_time_is_stopped_and_tried_again() -> None:
    decision = decide(at("train"), RunObservation(job=Job("running")), NOW + timedelta(minutes=61))
    assert decision.effects == (StopStage("r1-train-1"), StartStage("train", "r1-train-2"))


@pytest.mark.parametrize("state", ["pending", *run.STAGES])
def test_a_run_can_be_cancelled_from_every_state_on_its_way(state: str) -> None:
    decision = decide(at(state), RunObservation(request=Request("cancel", "ada", "wrong data")))
    assert decision.next.state == "cancelled"
    assert decision.next.reason == "cancel by ada: wrong data"
    assert decision.effects == (() if state == "pending" else (StopStage(f"r1-{state}-1"),))
    assert decision.consumes_request


@pytest.mark.parametrize("state", ["registered", "rejected", "failed", "cancelled"])
def test_an_ended_run_stays_as_it_is(state: str) -> None:
    status = replace(at("verify"), state=state)
    decision = decide(status, RunObservation(request=Request("cancel", "ada")))
    assert decision.next == status
    assert not decision.effects


@pytest.mark.parametrize("state", ["pending", *run.STAGES])
@pytest.mark.parametrize(
    "seen",
    [
        RunObservation(),
        RunObservation(job=Job("lost")),
        RunObservation(published=Published(GOOD)),
        RunObservation(published=Published({})),
        RunObservation(published=Published({}, failure="bad")),
        RunObservation(request=Request("cancel", "ada")),
    ],
)
def test_no_decision_leaves_the_transition_table(state: str, seen: RunObservation) -> None:
    for attempt in (1, 3):
        decision = decide(at(state, attempt), seen)
        run.MACHINE.check(state, decision.next.state)
