"""A row that has nothing to do costs nothing: whatever its state, passes over an unchanged world write nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shared.domain.run import MACHINE, STAGES
from shared.ports import Signals
from shared.ports.state import LONGEST_TERM
from tests.support.control_planes import SCALE
from tests.support.drift_readings import look
from tests.support.simulated_platform import NAME, World

PASSES = max(15, int(100 * SCALE))


@dataclass
class Rest:
    """A state, and how a world gets there and then stands still."""

    kind: str
    state: str
    prepare: Callable[[World], object]

    def __str__(self) -> str:
        return f"{self.kind} {self.state}"


def waiting(world: World) -> None:
    world.start_run("r0")
    world.plays["etl"] = ["hang"]
    world.clock.pass_by(seconds=1)
    world.start_run("r1")
    world.hero = ("run", "r1")


def stage(name: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.plays[name] = ["hang"]
        world.start_run()

    return prepare


def ended_run(state: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        if state == "rejected":
            world.metrics["evaluate"] = {}
        if state == "failed":
            world.plays["etl"] = ["refuse"]
        if state == "cancelled":
            world.script = [("train", lambda: world.ask("cancel"))]
        world.start_run()

    return prepare


def second(world: World, *script: tuple[str, str], users: int = 10, shadow: str | None = None) -> None:
    """A second version's rollout; few users, so that no step is decided."""
    rare = {"attribution": "1s", "window": "1s", "min_users": 30, "every": "1m", "deadline": "1h"}  # nothing is looked at meanwhile
    world.apply(rollout={"steps": ["20%", "50%"], "shadow": shadow, "analysis": rare})
    world.serve(world.version())
    world.version()
    world.users = users
    world.script = [(state, functools.partial(world.ask, verb)) for state, verb in script]
    world.start_rollout(2)


def blocked(world: World) -> None:
    second(world)
    world.clock.pass_by(seconds=1)
    world.start_rollout(world.version(), "o3")
    world.hero = ("rollout", "o3")


def loading(world: World) -> None:
    world.fake_server.silent.add((NAME, 2))
    second(world)


def broken(world: World) -> None:
    world.fake_server.broken[NAME, 2] = "corrupt"
    second(world)


def shadowed(world: World) -> None:
    second(world, shadow="1h")


def unreported(world: World) -> None:
    world.gateways = ()
    second(world)


def watching(world: World) -> None:
    world.apply()
    world.serve(world.version())
    world.plane().ensure()
    world.hero = ("retrainer", NAME)


def fired(world: World) -> None:
    watching(world)
    world.version("parent")
    world.apply(retrain={"on": [{"drift": {"psi": 0.2, "looks": 1}}], "cooldown": "6h"})
    world.signals.now = Signals(look(genres=0.5))
    world.plays["etl"] = ["hang"]


def cooled(world: World) -> None:
    fired(world)
    world.plays["etl"] = ["refuse"]


def alerting(world: World) -> None:
    cooled(world)
    world.apply(retrain={"on": [{"drift": {"looks": 1}}], "cooldown": "1s", "give_up_after": 1})


def held_back(world: World) -> None:
    fired(world)
    world.start_run("by-hand")


def deleted(world: World) -> None:
    watching(world)
    world.script = [("watching", lambda: world.recommenders.delete(NAME, world.clock.now()))]


def missed(world: World) -> None:
    """Due, and over the maximum."""
    fired(world)
    world.apply(
        retrain={"schedule": "* * * * *", "timezone": "Europe/Berlin", "max_per_day": 1, "on": [{"drift": {"looks": 1}}], "cooldown": "1s"}
    )
    world.plays["etl"] = ["refuse"]
    plane = world.plane()
    world.until(plane, "retraining")
    world.until(plane, "watching")
    world.clock.pass_by(seconds=60)


RESTS = [
    Rest("run", "pending", waiting),
    *(Rest("run", one, stage(one)) for one in STAGES),
    *(Rest("run", one, ended_run(one)) for one in ("registered", "rejected", "failed", "cancelled")),
    Rest("rollout", "pending", blocked),
    Rest("rollout", "loading", loading),
    Rest("rollout", "shadow", shadowed),
    Rest("rollout", "canary", second),
    Rest("rollout", "canary", unreported),
    Rest("rollout", "paused", lambda world: second(world, ("canary", "pause"))),
    Rest("rollout", "aborted", lambda world: second(world, ("canary", "abort"))),
    Rest("rollout", "promoted", lambda world: second(world, ("canary", "promote"))),
    Rest("rollout", "rolled_back", broken),
    Rest("retrainer", "watching", watching),
    Rest("retrainer", "watching", held_back),
    Rest("retrainer", "watching", missed),
    Rest("retrainer", "retraining", fired),
    Rest("retrainer", "cooling", cooled),
    Rest("retrainer", "alerting", alerting),
    Rest("retrainer", "retired", deleted),
]


def test_every_state_of_every_machine_is_among_those_that_rest() -> None:
    from shared.domain import retrainer, rollout

    assert {str(rest) for rest in RESTS} == {
        f"{machine.name} {state}" for machine in (MACHINE, rollout.MACHINE, retrainer.MACHINE) for state in machine.states
    }


def assert_passes_write_nothing(world: World, rest: Rest, holder: str | None) -> None:
    plane = world.plane(holder=holder)
    world.until(plane, rest.state)
    for _ in range(10):  # what is still under way settles
        world.round(plane)
    before = world.row()
    assert (world.hero[0], before.status.state) == (rest.kind, rest.state)
    history = world.store(rest.kind).history(before.id)
    assert world.writes, "the count counts"
    world.writes.clear()
    for _ in range(PASSES):
        plane.tick()
        world.clock.pass_by(milliseconds=1500 / PASSES)  # 1.5 s: every row is looked at, and no gateway has fallen silent
    assert world.writes == []
    assert world.row() == before
    assert world.store(rest.kind).history(before.id) == history


@pytest.mark.parametrize("rest", RESTS, ids=str)
def test_passes_over_an_unchanged_world_write_nothing(world: World, rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a control plane that is alone, then of one of several replicas. A hundred passes by EYAS_SCALE=1."""
    monkeypatch.setattr("services.control.replica.TERM", LONGEST_TERM)
    rest.prepare(world)
    for holder in (None, "replica-a"):
        assert_passes_write_nothing(world, rest, holder)
