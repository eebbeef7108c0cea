"""Conformance suite of Executor. A test module subclasses it and provides the fixture `bench`."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import pytest

from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid
from shared.domain.run import Job
from shared.ports import Executor
from shared.testing.waiting import wait_for

Behaviour = Literal["works", "talks", "succeeds", "fails"]


class Bench(Protocol):
    """An executor, and stages with a behaviour that the test chooses."""

    executor: Executor

    def again(self) -> Executor:
        """Returns another executor of the same folder or cluster, as after a restart of the platform. The bench closes it."""

    def behave(self, attempt: str, how: Behaviour) -> None:
        """Sets the behaviour of an attempt before its start: `works` runs until it is stopped; `talks` does the
        same and prints 'at work' first; `succeeds` prints 'hello wörld' and exits 0; `fails` prints 'no such file' and exits 1."""

    def starts(self, attempt: str) -> int:
        """Returns how often the attempt's process was started."""


class ExecutorSuite:
    def test_an_attempt_that_was_never_started_is_unknown(self, bench: Bench) -> None:
        assert bench.executor.observe("r1-etl-1") is None
        assert bench.executor.log("r1-etl-1") == ("", 0)

    def test_a_started_attempt_runs(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "works")
        bench.executor.start(stage_spec("r1-etl-1"))
        job = bench.executor.observe("r1-etl-1")
        assert job is not None, "a started job must be visible at once"
        assert job.phase in ("waiting", "running")
        runs(bench.executor, "r1-etl-1")

    def test_an_attempt_that_ends_well_has_succeeded(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "succeeds")
        bench.executor.start(stage_spec("r1-etl-1"))
        assert ended(bench.executor, "r1-etl-1") == Job("succeeded")

    def test_an_attempt_that_fails_says_why_in_its_last_words(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "fails")
        bench.executor.start(stage_spec("r1-etl-1"))
        job = ended(bench.executor, "r1-etl-1")
        assert job == Job("failed", "exit code 1: no such file", "crash")

    def test_starting_a_running_attempt_again_adopts_it(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "works")
        bench.executor.start(stage_spec("r1-etl-1"))
        bench.executor.start(stage_spec("r1-etl-1"))
        runs(bench.executor, "r1-etl-1")
        bench.executor.start(stage_spec("r1-etl-1"))
        runs(bench.executor, "r1-etl-1")
        wait_for(lambda: bench.starts("r1-etl-1") == 1)

    def test_starting_an_ended_attempt_again_runs_nothing(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "fails")
        bench.executor.start(stage_spec("r1-etl-1"))
        job = ended(bench.executor, "r1-etl-1")
        bench.executor.start(stage_spec("r1-etl-1"))
        assert bench.executor.observe("r1-etl-1") == job
        assert bench.starts("r1-etl-1") == 1

    def test_a_stopped_attempt_has_ended_when_stop_returns(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "works")
        bench.executor.start(stage_spec("r1-etl-1"))
        bench.executor.stop("r1-etl-1")
        job = bench.executor.observe("r1-etl-1")
        assert job is not None
        assert job.phase == "failed"
        assert job.reason.startswith("killed by signal")

    def test_stopping_twice_or_what_was_never_started_is_fine(self, bench: Bench) -> None:
        bench.executor.stop("r9-etl-1")
        assert bench.executor.observe("r9-etl-1") is None
        bench.behave("r1-etl-1", "works")
        bench.executor.start(stage_spec("r1-etl-1"))
        bench.executor.stop("r1-etl-1")
        bench.executor.stop("r1-etl-1")

    def test_stopping_an_ended_attempt_leaves_its_end(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "succeeds")
        bench.executor.start(stage_spec("r1-etl-1"))
        ended(bench.executor, "r1-etl-1")
        bench.executor.stop("r1-etl-1")
        assert bench.executor.observe("r1-etl-1") == Job("succeeded")

    def test_attempts_stand_side_by_side(self, bench: Bench) -> None:
        for attempt in ("r1-etl-1", "r2-etl-1"):
            bench.behave(attempt, "works")
            bench.executor.start(stage_spec(attempt))
        bench.executor.stop("r1-etl-1")
        runs(bench.executor, "r2-etl-1")

    def test_a_log_is_read_on_from_where_it_was_left(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "succeeds")
        bench.executor.start(stage_spec("r1-etl-1"))
        ended(bench.executor, "r1-etl-1")
        text, offset = bench.executor.log("r1-etl-1")
        assert text == "hello wörld\n"
        assert bench.executor.log("r1-etl-1", offset) == ("", offset)
        assert bench.executor.log("r1-etl-1", 6) == ("wörld\n", offset)

    def test_what_an_attempt_printed_before_it_was_stopped_stays(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "talks")
        bench.executor.start(stage_spec("r1-etl-1"))
        wait_for(lambda: bench.executor.log("r1-etl-1")[0] == "at work\n")
        bench.executor.stop("r1-etl-1")
        assert bench.executor.log("r1-etl-1")[0] == "at work\n"

    def test_an_end_and_its_log_are_still_known_after_a_restart(self, bench: Bench) -> None:
        bench.behave("r1-etl-1", "fails")
        bench.executor.start(stage_spec("r1-etl-1"))
        job = ended(bench.executor, "r1-etl-1")
        later = bench.again()
        assert later.observe("r1-etl-1") == job
        assert later.log("r1-etl-1") == bench.executor.log("r1-etl-1")
        later.start(stage_spec("r1-etl-1"))
        assert later.observe("r1-etl-1") == job
        assert bench.starts("r1-etl-1") == 1

    @pytest.mark.parametrize("attempt", ["../outside", "r1/etl", "R1", "", "."])
    def test_no_name_leads_elsewhere(self, bench: Bench, attempt: str) -> None:
        with pytest.raises(Invalid):
            bench.executor.observe(attempt)
        with pytest.raises(Invalid):
            bench.executor.log(attempt)
        with pytest.raises(Invalid):
            bench.executor.stop(attempt)


def stage_spec(attempt: str, stage: str = "etl", artifacts: str = "memory://", **more: Any) -> StageSpec:
    run, _, _ = attempt.split("-", 2)
    return StageSpec.model_validate(
        {"stage": stage, "run": run, "attempt": attempt, "recommender": small_spec(), "artifacts": artifacts, **more}
    )


def small_spec() -> RecommenderSpec:
    return RecommenderSpec.model_validate(
        {
            "apiVersion": "eyas/v1",
            "name": "movies",
            "data": {"interactions": {"uri": "ratings.csv"}, "items": {"uri": "movies.csv", "key": "movieId"}},
            "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
        }
    )


def runs(executor: Executor, attempt: str) -> None:
    """Waits until the attempt runs; fails if it ends before."""

    def begun() -> bool:
        job = executor.observe(attempt)
        assert job is not None
        assert job.phase in ("waiting", "running"), job
        return job == Job("running")

    wait_for(begun)


def ended(executor: Executor, attempt: str) -> Job:
    def over() -> Job | None:
        job = executor.observe(attempt)
        return None if job is None or job.phase in ("waiting", "running") else job

    job = wait_for(over)
    assert isinstance(job, Job)
    return job
