"""A run whose gate asks what the log foretells: which snapshot evaluate is given, that it is taken anew, and what its silence means."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.contracts.stage import BROKEN, MISSING
from shared.domain.gate import Verdict
from shared.testing.event_suite import did, shown
from tests.support.simulated_platform import NAME, World

GATES = [{"off_policy": "snips", "not_worse_than": "serving", "by": "5%"}, {"parity": 1e-4}]
KEY = "hit_rate.snips"
GOOD = {
    f"candidate.{KEY}": 0.21,
    f"candidate.{KEY}.se": 0.01,
    f"candidate.{KEY}.se_to.serving": 0.002,
    f"serving.{KEY}": 0.2,
    f"serving.{KEY}.se": 0.01,
}


def begin(world: World, run: str = "r1", serving: int | None = 1) -> None:
    world.apply(gates=GATES)
    if serving is not None and not world.registry.list(NAME):
        world.version()
    world.events.impressions([shown("q1", world.clock.now(), recommender=NAME, propensities=(0.9, 0.9, 0.9))])
    world.events.interactions([did(10, world.clock.now(), recommender=NAME)], [True], timedelta(seconds=1))
    world.hero = ("", "")
    world.start_run(run, serving=serving)


def test_evaluate_is_given_the_log_as_it_was_then(world: World) -> None:
    world.metrics["evaluate"] = GOOD
    begin(world)
    world.until(world.plane(), "registered", "run")
    stage = world.executor.given["r1-evaluate-1"]
    assert stage.answers is not None
    assert (stage.answers.version, stage.answers.since) == (1, world.registry.get(NAME, 1).created_at)
    assert sorted(stage.inputs["answers"]) == [f"{table}/2026-01-01.ndjson" for table in ("impressions", "interactions")]
    assert b'"request_id":"q1"' in world.artifacts.read(stage.inputs["answers"]["impressions/2026-01-01.ndjson"])
    assert all(one.answers is None for name, one in world.executor.given.items() if "evaluate" not in name)
    assert [result.verdict for result in world.runs.get("r1").status.gates] == [Verdict.PASS] * 3


def test_it_is_taken_anew_each_time(world: World) -> None:
    world.metrics["evaluate"] = GOOD
    begin(world)
    world.until(world.plane(), "registered", "run")
    begin(world, "r2")
    world.until(world.plane(), "registered", "run")
    found = {done.stage: done for done in world.runs.get("r2").status.stages}
    assert found["train"].reused and not found["evaluate"].reused
    assert found["evaluate"].basis is not None
    assert found["evaluate"].basis.why == "the log of answers is read again by each run"


def test_the_first_version_has_nothing_to_be_compared_with(world: World) -> None:
    world.metrics["evaluate"] = {}
    begin(world, serving=None)
    world.until(world.plane(), "registered", "run")
    assert world.executor.given["r1-evaluate-1"].answers is None
    assert world.runs.get("r1").status.gates[0].reason == "no version serves yet: nothing to compare with"


@pytest.mark.requirement("G-10")
@pytest.mark.parametrize(
    ("fact", "verdict", "reason"),
    [
        (MISSING, Verdict.INCONCLUSIVE, "hit_rate.snips was not measured: 12 answers are too few"),
        (BROKEN, Verdict.ERROR, "hit_rate.snips could not be measured: 12 answers are too few"),
    ],
)
def test_what_could_not_be_told_promotes_nothing_and_says_why(world: World, fact: str, verdict: Verdict, reason: str) -> None:
    world.metrics["evaluate"] = {}
    world.facts["evaluate"] = {fact: {f"candidate.{KEY}": "12 answers are too few"}}
    begin(world)
    world.until(world.plane(), "rejected", "run")
    status = world.runs.get("r1").status
    assert [(one.verdict, one.reason) for one in status.gates] == [(verdict, reason)]
    assert reason in status.reason
    assert len(world.registry.list(NAME)) == 1
