"""What follows from what is seen of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain import run
from shared.domain.gate import Gate, Silence, Verdict
from shared.domain.machine import Request
from shared.domain.run import (
    AttemptResult,
    Job,
    RegisterVersion,
    RunObservation,
    RunPlan,
    RunStatus,
    StartStage,
    StopStage,
)
from shared.domain.stage_reuse import ReuseBasis

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


def after_pause(status: RunStatus, seen: RunObservation, now: datetime = NOW) -> run.RunDecision:
    """What follows, once the next attempt's pause is over."""
    decision = decide(status, seen, now)
    if decision.next.retry_at is None:
        return decision
    assert not [one for one in decision.effects if isinstance(one, StartStage)]
    return decide(decision.next, RunObservation(), decision.next.retry_at)


def test_a_run_goes_through_every_stage_once_and_registers() -> None:
    decision = decide(RunStatus(), RunObservation())
    started = []
    while not run.MACHINE.terminal(decision.next.state):
        started += [effect for effect in decision.effects if isinstance(effect, StartStage)]
        decision = decide(decision.next, RunObservation(published=AttemptResult(GOOD)))
    assert [effect.attempt for effect in started] == [f"r1-{stage}-1" for stage in run.STAGES]
    assert decision.next.state == "registered"
    assert decision.effects == (RegisterVersion(),)
    assert [done.stage for done in decision.next.stages] == list(run.STAGES)


@pytest.mark.parametrize(("refit", "following"), [(True, "refit"), (False, "export")])
def test_a_run_refits_where_its_spec_asks_for_it(refit: bool, following: str) -> None:
    plan = replace(PLAN, stages=run.run_stages(refit))
    assert run.decide("r1", at("evaluate"), RunObservation(published=AttemptResult(GOOD)), plan, NOW).next.state == following


def test_a_refit_out_of_memory_names_the_resources_of_train() -> None:
    seen = RunObservation(job=Job("failed", "out of memory", "memory"))
    ended = decide(replace(at("refit", 2), ended=("memory",)), seen).next
    assert (ended.state, ended.dead_letter) == ("failed", True)
    assert "raise resources.train.memory" in ended.reason


def test_a_run_waits_for_the_run_before_it() -> None:
    decision = decide(RunStatus(), RunObservation(waits="waits for run r0 of this recommender"))
    assert decision.next.state == "pending"
    assert "r0" in decision.next.reason
    assert not decision.effects


@pytest.mark.requirement("G-10")
def test_a_failed_gate_rejects_with_its_reason() -> None:
    decision = decide(at("evaluate"), RunObservation(published=AttemptResult({**GOOD, "candidate.hr@10": 0.1})))
    assert decision.next.state == "rejected"
    assert "hr@10 is 0.1, popularity's is 0.2" in decision.next.reason
    assert not decision.effects


@pytest.mark.requirement("G-10")
def test_a_metric_that_was_not_measured_rejects() -> None:
    decision = decide(at("evaluate"), RunObservation(published=AttemptResult({})))
    assert decision.next.state == "rejected"
    assert decision.next.gates[0].verdict is Verdict.INCONCLUSIVE


@pytest.mark.requirement("G-10")
def test_a_person_may_answer_for_what_could_not_be_told_and_for_nothing_else() -> None:
    plan = replace(PLAN, accepts="ada")
    following = run.decide("r1", at("evaluate"), RunObservation(published=AttemptResult({"candidate.hr@10": 0.1})), plan, NOW).next
    assert following.state == "refit"
    assert (following.gates[0].verdict, following.gates[0].accepted) == (Verdict.INCONCLUSIVE, "ada")
    assert following.gates[0].reason == "popularity's hr@10 was not measured; accepted by ada"
    ended = run.decide("r1", replace(following, state="verify"), RunObservation(published=AttemptResult(GOOD)), plan, NOW).next
    assert (ended.state, ended.reason) == ("registered", "1 of 2 gates inconclusive, accepted by ada")
    for metrics, silence in (
        ({**GOOD, "candidate.hr@10": 0.1}, Silence()),
        ({}, Silence(broken={"candidate": "OSError: gone"})),
        ({**GOOD, "candidate.hr@10": float("nan")}, Silence()),
    ):
        observation = RunObservation(published=AttemptResult(metrics, silence=silence))
        assert run.decide("r1", at("evaluate"), observation, plan, NOW).next.state == "rejected"


@pytest.mark.requirement("C-04")
def test_a_served_unit_that_differs_from_training_is_rejected() -> None:
    decision = decide(at("verify"), RunObservation(published=AttemptResult({**GOOD, "parity": 0.5})))
    assert decision.next.state == "rejected"
    assert "parity is 0.5 > 0.0001" in decision.next.reason


def test_refused_data_fails_at_once_with_the_reason() -> None:
    observation = RunObservation(published=AttemptResult({}, failure="ratings.parquet: column userId has 3 nulls"))
    decision = decide(at("etl"), observation)
    assert decision.next.state == "failed"
    assert decision.next.reason == "etl: ratings.parquet: column userId has 3 nulls"


def test_a_stage_that_ended_without_publishing_is_tried_again_as_a_new_attempt(subtests: pytest.Subtests) -> None:
    for job in [None, Job("lost"), Job("failed", "exit code 1: boom"), Job("succeeded")]:
        with subtests.test(job=job):
            decision = after_pause(at("train"), RunObservation(job=job))
            assert decision.next.state == "train"
            assert decision.effects == (StartStage("train", "r1-train-2"),)


def test_after_three_faults_the_run_fails_and_says_why() -> None:
    status = at("train")
    for _ in range(2):
        status = after_pause(status, RunObservation(job=Job("failed", "killed by signal 9"))).next
        assert status.state == "train"
    decision = decide(status, RunObservation(job=Job("failed", "killed by signal 9")))
    assert decision.next.state == "failed"
    assert decision.next.reason == "train, attempt 3: killed by signal 9; gave up after 3 faults"
    assert decision.next.dead_letter


def test_restarts_of_the_platform_are_no_fault_of_the_stage() -> None:
    status = at("train")
    for _ in range(run.MAX_LOST - 1):
        status = decide(status, RunObservation(job=Job("lost"))).next
        assert (status.state, status.retry_at) == ("train", None)
    last = decide(status, RunObservation(job=Job("lost"))).next
    assert last.state == "failed"
    assert "lost attempts" in last.reason


def test_a_new_stage_begins_without_faults() -> None:
    status = after_pause(at("train"), RunObservation(job=Job("failed"))).next
    assert status.ended == ("crash",)
    assert decide(status, RunObservation(published=AttemptResult(GOOD))).next.ended == ()


def test_a_stage_that_runs_is_left_alone() -> None:
    status = at("train")
    decision = decide(status, RunObservation(job=Job("running")), NOW + timedelta(minutes=59))
    assert decision.next == status
    assert not decision.effects


def test_a_stage_over_its_time_is_stopped_and_tried_again() -> None:
    late = NOW + timedelta(minutes=61)
    assert decide(at("train"), RunObservation(job=Job("running")), late).effects == (StopStage("r1-train-1"),)
    assert after_pause(at("train"), RunObservation(job=Job("running")), late).effects == (StartStage("train", "r1-train-2"),)


def test_the_time_of_a_stage_begins_with_its_work_and_not_in_the_queue() -> None:
    late = NOW + timedelta(minutes=61)
    seen = RunObservation(job=Job("running", since=NOW + timedelta(minutes=30)))
    assert decide(at("train"), seen, late).next == at("train")
    assert decide(at("train"), seen, late + timedelta(minutes=30)).next.ended == ("deadline",)


# How each kind of trouble is met


def ends(kind: run.Fault | None, status: RunStatus, now: datetime = NOW) -> RunStatus:
    """The attempt has ended with that trouble; what follows, once the pause is over."""
    return after_pause(status, RunObservation(job=Job("failed", f"a {kind}", kind)), now).next


def test_pauses_grow_from_attempt_to_attempt() -> None:
    first = decide(at("train"), RunObservation(job=Job("failed", "boom"))).next
    assert (first.attempt, first.retry_at) == (2, NOW + timedelta(seconds=1))
    assert first.reason == "train, attempt 1: boom; next attempt in 1 s"
    second = decide(replace(first, retry_at=None), RunObservation(job=Job("failed", "boom"))).next
    assert second.retry_at == NOW + timedelta(seconds=10)


def test_until_its_pause_is_over_nothing_happens_to_a_run() -> None:
    status = replace(at("train", 2), retry_at=NOW + timedelta(seconds=1), ended=("crash",))
    decision = decide(status, RunObservation())
    assert (decision.next, decision.effects) == (status, ())
    assert decide(status, RunObservation(request=Request("cancel", "ada"))).next.state == "cancelled"


def test_the_pause_depends_on_the_faults_of_its_own_kind_only() -> None:
    """The first crash pauses as long after other faults as without them."""
    crash, evicted = (RunObservation(job=Job("failed", f"a {kind}", kind)) for kind in ("crash", "evicted"))
    for earlier in ((), ("memory",), ("evicted", "evicted"), ("evicted", "memory")):
        status = replace(at("train", 1 + len(earlier)), ended=earlier)
        assert decide(status, crash).next.retry_at == NOW + timedelta(seconds=1), earlier
    first = decide(at("train"), evicted).next.retry_at
    second = decide(replace(at("train", 2), ended=("evicted",)), evicted).next.retry_at
    assert first is not None and second is not None and first < second
    for earlier in (("crash",), ("crash", "memory")):
        status = replace(at("train", 1 + len(earlier)), ended=earlier)
        assert decide(status, evicted).next.retry_at == first, earlier


@pytest.mark.requirement("C-02")
def test_memory_is_tried_once_more_and_then_says_which_field_to_raise() -> None:
    again = ends("memory", at("train"))
    assert (again.state, again.attempt) == ("train", 2)
    failed = ends("memory", again)
    assert (failed.state, failed.dead_letter) == ("failed", True)
    assert failed.reason == "train, attempt 2: a memory; gave up after 2 attempts: raise resources.train.memory"


def test_faults_of_several_kinds_add_up() -> None:
    failed = ends("deadline", ends("memory", ends("crash", at("train"))))
    assert failed.reason.startswith("train, attempt 3: a deadline; gave up after 3 faults: raise resources.train.timeout")


def test_evictions_are_no_fault_and_pause_longer_each_time() -> None:
    status, pauses = at("train"), []
    for _ in range(run.MAX_LOST - 1):
        decided = decide(status, RunObservation(job=Job("failed", "node drained", "evicted"))).next
        assert decided.retry_at is not None
        pauses.append((decided.retry_at - NOW).total_seconds())
        status = decide(decided, RunObservation(), decided.retry_at).next
        status = replace(status, attempt_since=NOW)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 60)
    assert ends("evicted", status).dead_letter


def wait(status: RunStatus, kind: run.Fault | None, minutes: float) -> RunStatus:
    return decide(status, RunObservation(job=Job("waiting", f"it is {kind}", kind)), NOW + timedelta(minutes=minutes)).next


@pytest.mark.requirement("C-02")
@pytest.mark.parametrize("kind", ["unschedulable", "quota", None])
def test_a_job_without_a_place_waits_visibly_and_for_a_day(kind: run.Fault | None) -> None:
    status = wait(at("train"), kind, 0)
    assert (status.state, status.reason) == ("train", f"train waits: it is {kind}")
    assert wait(status, kind, 24 * 60) == status
    gone = decide(status, RunObservation(job=Job("waiting", "no GPU", kind)), NOW + timedelta(hours=25))
    assert (gone.next.state, gone.next.dead_letter, gone.effects) == ("failed", True, (StopStage("r1-train-1"),))
    assert "no GPU; gave up after 24 h: " in gone.next.reason


def test_an_image_that_does_not_come_is_waited_for_ten_minutes_and_never_tried_again() -> None:
    status = wait(wait(at("train"), "unschedulable", 0), "image", 60)
    assert wait(status, "image", 70) == status
    failed = wait(status, "image", 71)
    assert failed.state == "failed"
    assert "gave up after 10 min: check the image's name" in failed.reason
    assert ends("image", at("train")).state == "failed"


def test_a_job_that_has_found_its_place_no_longer_says_that_it_waits() -> None:
    status = wait(at("train"), "quota", 0)
    begun = decide(status, RunObservation(job=Job("running", since=NOW))).next
    assert begun == at("train")


# Stages that needn't run

ETL = ReuseBasis("d" * 64, {"code": "1"}, "r0-etl-1", "nothing has changed since r0-etl-1", NOW - timedelta(days=1))


def test_a_stage_for_which_another_attempt_stands_is_gone_through_without_a_job() -> None:
    entered = decide(RunStatus(), RunObservation(ahead=ETL))
    assert (entered.next.state, entered.next.attempt, entered.effects) == ("etl", 0, ())
    passed = decide(entered.next, RunObservation(published=AttemptResult(GOOD)))
    (done,) = passed.next.stages
    assert (done.attempt, done.reused, done.began, done.started_at) == ("r0-etl-1", True, NOW - timedelta(days=1), NOW)
    assert passed.effects == (StartStage("train", "r1-train-1"),)


def test_what_is_gone_before_it_could_be_used_is_made_anew() -> None:
    entered = decide(RunStatus(), RunObservation(ahead=ETL)).next
    decision = decide(entered, RunObservation(ahead=ETL))
    assert decision.effects == (StartStage("etl", "r1-etl-1"),)
    assert decision.next.basis is not None
    assert decision.next.basis.attempt == ""


def test_a_reused_stage_is_cancelled_without_touching_the_attempt_of_another_run() -> None:
    entered = decide(RunStatus(), RunObservation(ahead=ETL)).next
    assert decide(entered, RunObservation(request=Request("cancel", "ada"))).effects == ()


def test_gates_are_judged_anew_on_what_is_reused() -> None:
    entered = decide(at("train"), RunObservation(published=AttemptResult(GOOD), ahead=replace(ETL, attempt="r0-evaluate-1"))).next
    assert entered.state == "evaluate"
    assert (
        decide(entered, RunObservation(published=AttemptResult({"candidate.hr@10": 0.1, "popularity.hr@10": 0.2}))).next.state == "rejected"
    )


def test_a_stage_whose_data_moved_while_it_was_read_stands_for_nobody() -> None:
    started = decide(RunStatus(), RunObservation(ahead=replace(ETL, attempt="", why="nothing to reuse yet"))).next
    (done,) = decide(started, RunObservation(published=AttemptResult(GOOD, steady=False))).next.stages
    assert done.basis is not None
    assert (done.basis.digest, done.basis.why) == ("", "nothing to reuse yet; the data changed while it was read")


def test_a_run_can_be_cancelled_from_every_state_on_its_way(subtests: pytest.Subtests) -> None:
    for state in ["pending", *run.STAGES]:
        with subtests.test(state=state):
            decision = decide(at(state), RunObservation(request=Request("cancel", "ada", "wrong data")))
            assert decision.next.state == "cancelled"
            assert decision.next.reason == "cancel by ada: wrong data"
            assert decision.effects == (() if state == "pending" else (StopStage(f"r1-{state}-1"),))
            assert decision.consumes_request


def test_an_ended_run_stays_as_it_is(subtests: pytest.Subtests) -> None:
    for state in ["registered", "rejected", "failed", "cancelled"]:
        with subtests.test(state=state):
            status = replace(at("verify"), state=state)
            decision = decide(status, RunObservation(request=Request("cancel", "ada")))
            assert decision.next == status
            assert not decision.effects


def test_no_decision_leaves_the_transition_table(subtests: pytest.Subtests) -> None:
    for state in ["pending", *run.STAGES]:
        for seen in [
            RunObservation(),
            RunObservation(job=Job("lost")),
            RunObservation(published=AttemptResult(GOOD)),
            RunObservation(published=AttemptResult({})),
            RunObservation(published=AttemptResult({}, failure="bad")),
            RunObservation(request=Request("cancel", "ada")),
        ]:
            with subtests.test(state=state, seen=seen):
                for attempt in (1, 3):
                    decision = decide(at(state, attempt), seen)
                    run.MACHINE.check(state, decision.next.state)


def test_what_takes_long_is_looked_at_less_often(subtests: pytest.Subtests) -> None:
    for age, pause in [(0, 0.25), (10, 0.25), (40, 1), (80, 2), (86_400, 2)]:
        for phase in ["running", "waiting"]:
            with subtests.test(age=age, pause=pause, phase=phase):
                status = replace(at("train"), attempt_since=NOW)
                now = NOW + timedelta(seconds=age)
                job = Job(phase, since=now if phase == "running" else None)
                assert decide(status, RunObservation(job=job), now).requeue_after == timedelta(seconds=pause)


def test_a_retry_that_a_clock_far_ahead_has_put_off_begins_now() -> None:
    status = replace(at("train", 2), retry_at=NOW + timedelta(days=100), ended=("crash",))
    assert decide(status, RunObservation()).effects == (StartStage("train", "r1-train-2"),)


def test_a_full_disk_is_no_fault_of_the_stage_and_is_tried_again_for_a_while() -> None:
    full = RunObservation(job=Job("failed", "exit code 4: no space", "disk"))
    status, pauses = at("train"), []
    while status.state == "train":
        decided = decide(replace(status, retry_at=None), full).next
        pauses += [decided.retry_at - NOW] if decided.retry_at else []
        status = decided
    assert (pauses[0], pauses[-1], len(pauses)) == (timedelta(seconds=1), timedelta(minutes=1), run.MAX_LOST - 1)
    assert status.dead_letter
    assert status.reason.endswith("free some space on its disk, then retry the run")
