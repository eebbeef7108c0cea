"""A control plane that stalls in the middle of a pass while another one goes on; and rows that can't go on at all."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import text

from shared.contracts.stage import StageSpec
from shared.domain.errors import Conflict, Invalid, Unavailable
from shared.domain.route import Route
from shared.domain.run import MAX_LOST
from tests.support.simulated_platform import NAME, Fate, World


@pytest.mark.parametrize("after", ["abort", "promote"])
def test_the_route_of_a_pass_that_was_overtaken_is_not_set(world: World, after: str) -> None:
    """Another control plane takes the step and the rollout ends, all between the intent and its effect."""
    world.apply()
    world.serve(world.version())
    version = world.version()
    world.start_rollout(version)

    def go_on() -> None:
        other = world.plane()
        world.until(other, "canary", "rollout", "placement")
        world.ask(after)
        for _ in range(3):
            world.round(other, "rollout", "placement")

    fate = Fate("rollout", 1, "after intent", go_on)
    stalled = world.plane(fate)
    for _ in range(6):
        world.round(stalled, "rollout", "placement")
    assert fate.struck
    ended = Route(1) if after == "abort" else Route(version)
    found = world.routes.get(NAME)
    assert found is not None and (found.stable, found.candidate) == (ended.stable, None)


def test_a_stage_that_starts_after_its_run_has_ended_is_stopped(world: World) -> None:
    """On a cluster the name is free again once the first Job was deleted."""
    world.plays["etl"] = ["hang"]
    world.start_run()

    def go_on() -> None:
        other = world.plane()
        other.tick("run")
        world.ask("cancel")
        other.tick("run")
        world.executor.forget("r1-etl-1")

    fate = Fate("run", 0, "after intent", go_on)
    world.plane(fate).tick("run")
    assert fate.struck and world.row().status.state == "cancelled"
    job = world.executor.observe("r1-etl-1")
    assert job is None or job.phase == "failed"


def refusing(world: World, error: Exception) -> None:
    def start(_spec: StageSpec) -> None:
        raise error

    world.executor.start = start  # type: ignore[method-assign, assignment]


def test_a_conflict_that_is_no_race_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.start_run()
    refusing(world, Conflict("the Job r1-etl-1 is not this platform's; it is in the way"))
    with caplog.at_level(logging.WARNING):
        world.plane().tick("run")
    assert "it is in the way" in caplog.text


@pytest.mark.parametrize("error", [Invalid("resources.train.processes: no rendezvous"), Conflict("it is in the way")])
def test_a_stage_that_can_never_start_ends_its_run(world: World, error: Exception) -> None:
    """Else it would hold its place among the active runs for ever, deaf to a cancel."""
    world.start_run()
    refusing(world, error)
    plane = world.plane()
    for _ in range(200):
        world.round(plane, "run")
    status = world.row().status
    assert (status.state, status.dead_letter) == ("failed", True)
    assert str(error) in status.reason


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_row_that_another_one_has_ended_is_not_given_up_once_more(world: World, end: str) -> None:
    """Two control planes lose hope of one run: one of them writes its end, between the other's last try and its verdict."""
    world.start_run()
    stalled, other, tries, ended = world.plane(), world.plane(), 0, world.row()

    def go_on() -> None:
        nonlocal ended
        if end == "cancelled":
            world.executor.start = lambda _spec: None  # type: ignore[method-assign, assignment]
            world.until(other, "etl", "run")
            world.ask("cancel")
        world.until(other, end, "run")
        ended = world.row()

    def start(_spec: StageSpec) -> None:
        nonlocal tries
        tries += 1
        if tries == 8:
            go_on()
        raise Invalid("resources.train.processes: no rendezvous")

    world.executor.start = start  # type: ignore[method-assign, assignment]
    while tries < 8:
        world.round(stalled, "run")
    for _ in range(20):
        world.round(stalled, "run")
    assert ended.status.state == end
    assert world.row() == ended
    assert [one.target for one in world.runs.history("r1")].count(end) == 1


def test_a_part_that_is_away_ends_no_run(world: World) -> None:
    world.start_run()
    refusing(world, Unavailable("the cluster is away"))
    plane = world.plane()
    for _ in range(200):
        world.round(plane, "run")
    assert world.row().status.state == "pending"


def test_a_run_whose_parent_is_gone_ends_and_lets_others_in(world: World) -> None:
    world.max_runs = 1
    world.apply()
    world.start_run("r1", mode="warm", serving=99)
    plane = world.plane()
    for _ in range(200):
        world.round(plane, "run")
    status = world.row().status
    assert status.state == "failed" and "99" in status.reason


def test_a_row_that_is_not_even_json_holds_up_no_other(world: World) -> None:
    world.start_run("r1")
    world.clock.pass_by(seconds=1)
    world.apply()
    world.serve(world.version())
    world.plane().ensure()
    world.start_run("r2")
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE resources SET recommender = 'other', status = '{' WHERE id = 'r1' AND kind = 'run'"))
    world.hero = ("run", "r2")
    world.until(world.plane(), "registered", "run")


def test_runs_that_wait_cost_next_to_nothing(world: World) -> None:
    """They are looked at when their turn comes."""
    world.max_runs = 1
    world.plays["etl"] = ["hang"] * MAX_LOST
    for number in range(20):
        world.start_run(f"r{number:02}")
        world.clock.pass_by(milliseconds=1)
    plane = world.plane()
    plane.tick("run")
    plane.tick("run")
    read = Counting(plane.runs.get)
    plane.runs.get = read  # type: ignore[method-assign, assignment]
    for _ in range(8):
        world.clock.pass_by(milliseconds=250)
        plane.tick("run")
    assert len(read.asked) <= 8 + 1, "the one that works, at each tick"
    world.hero = ("run", "r00")
    world.ask("cancel")
    plane.tick("run")
    world.clock.pass_by(milliseconds=250)
    plane.tick("run")
    assert [one.id for one in world.runs.list(states={"etl"})] == ["r01"], "the next one begins at once"


class Counting:
    def __init__(self, inner: Callable[[str], object]) -> None:
        self.inner = inner
        self.asked: list[str] = []

    def __call__(self, id: str) -> object:
        self.asked.append(id)
        return self.inner(id)
