"""Rollouts of which nothing is known, by the real reconciler and the real stores: nobody is promoted on a guess, and nobody is sent
back because the version that serves has died.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from services.eventlog.kpis import SqlKpis
from shared.domain.errors import Unavailable
from shared.domain.sequential_test import VariantSample
from tests.support.simulated_platform import NAME, Plane, World

SERVED = ("rollout", "placement")
FIRST, LAST = (1, 2, 0.2), (1, 2, 0.5)


def start_second(world: World) -> World:
    """Version 1 serves, version 2 is about to be rolled out in two steps."""
    world.serve(world.version())
    world.version()
    world.start_rollout(2)
    return world


@pytest.fixture
def second(world: World) -> World:
    return start_second(world)


def route(world: World) -> tuple[int, int | None, float]:
    found = world.routes.get(NAME)
    assert found is not None
    return found.stable, found.candidate, found.weight


def until_weight(world: World, plane: Plane, weight: float) -> None:
    """Until the step of that weight has begun."""
    for _ in range(100):
        if route(world)[2] == weight and world.row().status.step_since is not None:
            return
        world.round(plane, *SERVED)
    raise AssertionError(f"never at {weight:.0%}: {world.row().status}")


def stays_paused(world: World, plane: Plane, where: tuple[int, int | None, float]) -> str:
    """It pauses with the route as it was, and pauses again however often somebody resumes it; what it says of why."""
    world.until(plane, "paused", *SERVED)
    reason = str(world.row().status.reason)
    for _ in range(2):
        world.ask("resume")
        world.round(plane, *SERVED)
        world.until(plane, "paused", *SERVED)
    assert route(world) == where
    assert "promoted" not in world.path()
    assert "rolled_back" not in world.path()
    return reason


Visit = Callable[[World], None]


def nobody(world: World) -> None:
    world.users = 0


def of_one_variant(variant: str) -> Visit:
    def change(world: World) -> None:
        visit = world.visit

        def once(route: Any, whose: str, version: int) -> None:
            if whose == variant:
                visit(route, whose, version)

        world.visit = once  # type: ignore[method-assign]

    return change


def liking_nothing(world: World) -> None:
    world.disliked |= {1, 2}


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize(
    "users",
    [nobody, of_one_variant("stable"), of_one_variant("candidate"), liking_nothing],
    ids=["nobody comes", "only the stable version is asked", "only the candidate is asked", "nobody likes anything"],
)
def test_a_rollout_without_events_is_paused_and_never_promoted(world: World, users: Visit) -> None:
    rollout = world.spec.document()["rollout"]
    world.apply(rollout={**rollout, "analysis": {**rollout["analysis"], "deadline": "10s"}})
    start_second(world)
    users(world)
    assert stays_paused(world, world.plane(), FIRST)


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("what", ["samples", "traffic"])
@pytest.mark.parametrize("weight", [0.2, 0.5])
def test_a_rollout_whose_users_cannot_be_counted_is_paused_at_whatever_step(
    second: World, monkeypatch: pytest.MonkeyPatch, what: str, weight: float
) -> None:
    plane = second.plane()
    until_weight(second, plane, weight)

    def down(*_: Any) -> Any:
        raise Unavailable("the monitor doesn't answer")

    monkeypatch.setattr(SqlKpis, what, down)
    reason = stays_paused(second, plane, (1, 2, weight))
    assert reason.endswith("cannot be counted: the monitor doesn't answer")


def test_a_rollout_goes_on_once_its_users_can_be_counted_again(second: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = second.plane()
    until_weight(second, plane, 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(SqlKpis, "traffic", lambda *_: (_ for _ in ()).throw(Unavailable("the monitor doesn't answer")))
        second.until(plane, "paused", *SERVED)
    second.ask("resume")
    second.round(plane, *SERVED)
    second.until(plane, "promoted", *SERVED)
    assert route(second) == (2, None, 0.0)


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("whose", ["stable", "candidate"])
@pytest.mark.parametrize("weight", [0.2, 0.5])
def test_a_rollout_whose_metrics_are_no_numbers_is_paused_at_whatever_step(
    second: World, monkeypatch: pytest.MonkeyPatch, whose: str, weight: float
) -> None:
    """However often somebody resumes it, each time with another value that is no number."""
    plane = second.plane()
    until_weight(second, plane, weight)
    counted = SqlKpis.samples
    value = math.nan

    def undefined(self: SqlKpis, *arguments: Any) -> Mapping[str, VariantSample]:
        found = counted(self, *arguments)
        return {**found, whose: replace(found.get(whose, VariantSample(users=40)), total=value)}

    monkeypatch.setattr(SqlKpis, "samples", undefined)
    assert "is not a number" in stays_paused(second, plane, (1, 2, weight))
    for value in (math.inf, -math.inf):  # noqa: B007  `undefined` reads it
        second.ask("resume")
        second.round(plane, *SERVED)
        second.until(plane, "paused", *SERVED)
        assert "is not a number" in second.row().status.reason
    assert route(second) == (1, 2, weight)
    assert not {"promoted", "rolled_back"} & set(second.path())


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("weight", [0.2, 0.5])
@pytest.mark.parametrize("dead", [{1}, {1, 2}], ids=["the stable version", "both versions"])
def test_a_stable_version_that_dies_in_the_middle_halts_the_rollout_where_it_is(second: World, weight: float, dead: set[int]) -> None:
    """Its users have nowhere better to go: neither back to a dead version, nor on to one that hasn't proven itself."""
    plane = second.plane()
    until_weight(second, plane, weight)
    second.fake_server.silent |= {(NAME, version) for version in dead}
    reason = stays_paused(second, plane, (1, 2, weight))
    assert reason == "halted: the stable version 1 does not answer"
    second.fake_server.silent.clear()
    second.ask("resume")
    second.round(plane, *SERVED)
    second.until(plane, "promoted", *SERVED)
    assert route(second) == (2, None, 0.0)


def test_evidence_for_a_promotion_counts_for_nothing_while_the_stable_version_is_dead(second: World) -> None:
    """All users of the last step have been counted, and it dies before the pass that would promote."""
    plane = second.plane()
    until_weight(second, plane, 0.5)
    second.clock.pass_by(seconds=30)
    second.report()
    second.fake_server.silent.add((NAME, 1))
    second.until(plane, "paused", *SERVED)
    assert route(second) == LAST
    assert "promoted" not in second.path()


def test_a_stable_version_that_dies_while_the_candidate_is_loaded_halts_the_rollout(world: World) -> None:
    world.apply(rollout={**world.spec.document()["rollout"], "progress": "10s"})
    world.serve(world.version())
    world.version()
    world.start_rollout(2)
    world.fake_server.silent.add((NAME, 1))
    world.until(world.plane(), "paused", *SERVED)
    assert world.row().status.reason == "halted: the stable version 1 does not answer"
    assert route(world) == (1, None, 0.0)
