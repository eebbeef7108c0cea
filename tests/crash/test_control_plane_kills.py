"""Kills and rival controllers in process, for what the kill matrix of real processes (`matrix`) has no life of.

That matrix knows no retrainers, no lost nodes or memory, no run that is retried and no rollout that is started again.
`tests/unit/control/test_crash_points.py` plays a few of these lives at each change.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, update

import shared.domain.run
from services.store.tables import resources, versions
from shared.domain.route import Route
from shared.ports import Record, Version
from tests.support.control_plane_scenarios import (
    LIVES,
    RETRAINERS,
    ROLLOUTS,
    RUNS,
    Fated,
    Life,
    Undisturbed,
    assert_event_is_in_one_snapshot,
    dying,
    ending,
    rivalled,
)
from tests.support.simulated_platform import POINTS, Death, Parts, Registry, Routes, Rows
from tests.support.simulated_platform_fixtures import NewWorld

pytestmark = pytest.mark.timeout(1200)
REGISTERED, PROMOTED = RUNS[0], ROLLOUTS[1]
IN_PROCESS_ONLY = {
    "run evicted twice",
    "run out of memory",
    "run reusing a part",
    "run retried where it ended",
    "run retried from its middle",
    "rollout tried again",
}
KILLED = [life for life in LIVES if life.kind == "retrainer" or str(life) in IN_PROCESS_ONLY]


def test_every_life_that_only_this_file_kills_is_there() -> None:
    assert {str(life) for life in KILLED if life.kind != "retrainer"} == IN_PROCESS_ONLY


@pytest.mark.requirement("G-11", "C-05")
@pytest.mark.parametrize("life", KILLED, ids=str)
def test_a_death_at_any_transition_changes_nothing_about_the_end(new_world: NewWorld, life: Life, subtests: pytest.Subtests) -> None:
    undisturbed = Undisturbed(new_world)
    for number, move in enumerate(undisturbed.of(life)[1]):
        for point in move.points:
            with subtests.test(move=number, target=move.target, point=point):
                undisturbed.disturb(life, dying(life.kind, number, point))


@pytest.mark.parametrize("life", [REGISTERED, PROMOTED, *RETRAINERS], ids=str)
def test_a_second_controller_in_the_middle_of_any_transition_changes_nothing(
    new_world: NewWorld, life: Life, subtests: pytest.Subtests
) -> None:
    undisturbed = Undisturbed(new_world)
    for number, move in enumerate(undisturbed.of(life)[1]):
        for point in move.points:
            with subtests.test(move=number, target=move.target, point=point):
                undisturbed.disturb(life, rivalled(life, number, point))


def test_a_control_plane_that_dies_at_another_point_of_every_transition_still_gets_there(new_world: NewWorld) -> None:
    expected, moves = Undisturbed(new_world).of(REGISTERED)
    world = new_world()
    REGISTERED.prepare(world)
    deaths = 0
    for number in range(len(moves)):
        fate = dying("run", 0, POINTS[number % len(POINTS)])(world)
        plane = world.plane(fate)
        while not fate.struck:
            world.play()
            try:
                plane.tick("run")
            except Death:
                deaths += 1
            world.clock.pass_by(seconds=1)
    world.until(world.plane(), "registered", "run")
    assert deaths == len(moves)
    assert ending(world) == expected


# The check notices each safeguard that is taken away


class Blind(Rows[Any, Any]):
    """Without compare-and-swap: whoever writes, wins."""

    def _advance(self, connection: Connection, record: Record[Any, Any], **values: Any) -> None:
        found = self._find(connection, record.id)
        assert found is not None
        super()._advance(connection, replace(record, revision=found.revision), **values)


class Forgetful(Rows[Any, Any]):
    """Without intents."""

    def write_intent(self, record: Record[Any, Any], intent: Mapping[str, Any]) -> Record[Any, Any]:
        written = super().write_intent(record, intent)
        with self._engine.begin() as connection:
            connection.execute(update(resources).where(*self._named(record.id)).values(intent=None))
        return written


class Doubling(Registry):
    """A run that has registered registers again."""

    def register(self, version: Version) -> Version:
        earlier = self.of_run(version.run)
        if earlier is not None:
            with self._engine.begin() as connection:
                connection.execute(update(versions).where(versions.c.run == version.run).values(run=f"{version.run}-earlier"))
        return super().register(version)


class Restless(Routes):
    """An equal route is put again."""

    def put(self, recommender: str, route: Route, *rest: Any) -> Route:
        now = self.get(recommender)
        if now is not None and (now.stable, now.candidate, now.weight) == (route.stable, route.candidate, route.weight):
            super().put(recommender, replace(route, salt="another"), *rest)
        return super().put(recommender, route, *rest)


def noticed(undisturbed: Undisturbed, life: Life, point: str, disturbance: Callable[[int], Fated]) -> list[str]:
    """The targets of the transitions whose disturbance the check notices."""
    found = []
    for number, move in enumerate(undisturbed.of(life)[1]):
        if point in move.points:
            try:
                undisturbed.disturb(life, disturbance(number))
            except AssertionError:
                found.append(move.target)
    return found


@pytest.mark.parametrize("point", ["before intent", "before commit"])
def test_the_check_notices_that_compare_and_swap_is_gone(new_world: NewWorld, point: str) -> None:
    undisturbed = Undisturbed(new_world, Parts(rows=Blind))
    for life in (REGISTERED, PROMOTED):
        assert noticed(undisturbed, life, point, functools.partial(rivalled, life, point=point))


def test_the_check_notices_names_that_another_life_would_not_find(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names differ from one control plane to the next, and stay the same within one."""
    lives = itertools.count()

    @functools.cache
    def name(run: str, stage: str, attempt: int) -> str:
        return f"{run}-{stage}-{attempt}-{next(lives):04}"

    class Newborn(Rows[Any, Any]):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            name.cache_clear()

    monkeypatch.setattr(shared.domain.run, "attempt_name", name)
    undisturbed = Undisturbed(new_world, Parts(rows=Newborn))
    for point in ("after intent", "after the effect", "before commit", "after commit"):
        assert noticed(undisturbed, REGISTERED, point, functools.partial(dying, "run", point=point))


def test_the_check_notices_that_intents_are_gone(new_world: NewWorld) -> None:
    """Without them the pass after the death decides anew, at another time than that at which the events were cut."""
    with pytest.raises(AssertionError, match="of an event in 0 snapshots"):
        assert_event_is_in_one_snapshot(new_world(Parts(rows=Forgetful)), "after the effect")


def test_the_check_notices_that_a_run_registers_twice(new_world: NewWorld) -> None:
    undisturbed = Undisturbed(new_world, Parts(registry=Doubling))
    found = noticed(undisturbed, REGISTERED, "before commit", functools.partial(dying, "run", point="before commit"))
    assert found == ["registered"]


def test_the_check_notices_traffic_that_moves_twice(new_world: NewWorld) -> None:
    undisturbed = Undisturbed(new_world, Parts(routes=Restless))
    found = noticed(undisturbed, PROMOTED, "before commit", functools.partial(dying, "rollout", point="before commit"))
    assert found == ["canary", "canary", "promoted"]
