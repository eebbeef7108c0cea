"""kill -9 at each point of each transition, and a rival controller there: the life goes on to the end that it would have had."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from sqlalchemy import Connection, update

import shared.domain.run
from services.store.tables import resources, versions
from shared.contracts.events import Interaction
from shared.domain import retrainer, rollout
from shared.domain import run as run_domain
from shared.domain.route import Route
from shared.ports import Record, Version
from tests.unit.control.conftest import NewWorld
from tests.unit.control.lives import LIVES, RETRAINERS, ROLLOUTS, RUNS, Fated, Life, check, dying, ending, live, rivalled
from tests.unit.control.world import NAME, POINTS, Death, Fate, Move, Parts, Registry, Routes, Rows, World

REGISTERED, PROMOTED = RUNS[0], ROLLOUTS[1]
Undisturbed = tuple[dict[str, Any], list[Move]]


class Deeds:
    """Lives lived without a disturbance, and others to hold against them."""

    known: ClassVar[dict[Life, Undisturbed]] = {}

    def __init__(self, new_world: NewWorld, parts: Parts | None = None) -> None:
        self._new_world = new_world
        self._parts = parts

    def undisturbed(self, life: Life) -> Undisturbed:
        if self._parts is not None:
            return self._lived(life)
        if life not in self.known:
            self.known[life] = self._lived(life)
        return self.known[life]

    def disturbed(self, life: Life, fated: Fated, expected: dict[str, Any]) -> None:
        world = self._new_world(self._parts)
        check(world, life, fated(world), expected)
        world.close()

    def _lived(self, life: Life) -> Undisturbed:
        fate = Fate(life.kind)
        world = live(self._new_world(self._parts), life, fate)
        return ending(world), fate.moves


@pytest.mark.parametrize("life", LIVES, ids=str)
def test_an_undisturbed_life_goes_through_its_states(world: World, life: Life) -> None:
    live(world, life, Fate("none"))
    assert world.path() == list(life.path)


def test_the_lives_take_every_edge_of_every_machine() -> None:
    taken = {(life.kind, *edge) for life in LIVES for edge in itertools.pairwise(life.path)}
    edges = {
        (machine.name, edge.source, edge.target)
        for machine in (run_domain.MACHINE, rollout.MACHINE, retrainer.MACHINE)
        for edge in machine.edges
    }
    beside = {("run", stage, end) for stage in run_domain.STAGES for end in ("failed", "cancelled")} | {
        ("retrainer", "cooling", "retraining"),
        ("retrainer", "retraining", "retired"),
    }
    assert edges - taken <= beside, "edges that are like others of their kind"


@pytest.mark.requirement("G-11", "C-05")
@pytest.mark.matrix(0.2)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("life", LIVES, ids=str)
def test_a_death_at_any_transition_changes_nothing_about_the_end(new_world: NewWorld, life: Life, point: str) -> None:
    deeds = Deeds(new_world)
    expected, moves = deeds.undisturbed(life)
    for number, move in enumerate(moves):
        if point in move.points:
            deeds.disturbed(life, dying(life.kind, number, point), expected)


@pytest.mark.parametrize("life", [REGISTERED, PROMOTED], ids=str)
def test_nor_does_one_on_postgresql(new_postgres_world: NewWorld, life: Life) -> None:
    """A sample: each transition, at another point each time; a death, then a rival."""
    deeds = Deeds(new_postgres_world, Parts())
    expected, moves = deeds.undisturbed(life)
    for number, move in enumerate(moves):
        deeds.disturbed(life, dying(life.kind, number, move.points[number % len(move.points)]), expected)
        deeds.disturbed(life, rivalled(life, number, move.points[-1 - number % len(move.points)]), expected)


@pytest.mark.matrix(0.25)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("life", [REGISTERED, PROMOTED, *RETRAINERS], ids=str)
def test_a_second_controller_in_the_middle_of_any_transition_changes_nothing(new_world: NewWorld, life: Life, point: str) -> None:
    deeds = Deeds(new_world)
    expected, moves = deeds.undisturbed(life)
    for number, move in enumerate(moves):
        if point in move.points:
            deeds.disturbed(life, rivalled(life, number, point), expected)


def test_a_control_plane_that_dies_at_every_single_transition_still_gets_there(new_world: NewWorld) -> None:
    """At another point each time."""
    expected, moves = Deeds(new_world).undisturbed(REGISTERED)
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


def check_snapshots(world: World, point: str) -> None:
    """The etl stage of a run is started twice, and meanwhile somebody likes something: the next warm run must learn of it, and once."""
    world.apply(data={"interactions": {"uri": "a.csv", "also": "events"}, "items": {"uri": "b.csv", "key": "film"}})
    world.start_run("r1")
    with pytest.raises(Death):
        world.plane(dying("run", 0, point)(world)).tick("run")
    world.clock.pass_by(seconds=1)
    like = Interaction(recommender=NAME, user=1, item=77, at=world.clock.now())
    world.events.interactions([like], [True], timedelta(seconds=1))
    world.clock.pass_by(seconds=1)
    plane = world.plane()
    world.until(plane, "registered", "run")
    world.hero = ("", "")
    world.start_run("r2", mode="warm", serving=1)
    world.until(plane, "registered", "run")
    files = [one.inputs["events"]["events.csv"] for one in world.executor.started if one.stage == "etl"]
    found = sum("1,77," in world.artifacts.read(file).decode() for file in files)
    assert len(files) == 2
    assert found == 1, f"of an event in {found} snapshots"


@pytest.mark.requirement("G-09")
@pytest.mark.parametrize("point", POINTS)
def test_an_event_during_a_death_is_in_exactly_one_snapshot(world: World, point: str) -> None:
    check_snapshots(world, point)


# What the check is worth: each safeguard taken away is noticed


class Blind(Rows[Any]):
    """Compare-and-swap removed: whoever writes, wins."""

    def _advance(self, connection: Connection, record: Record[Any], **values: Any) -> None:
        found = self._find(connection, record.id)
        assert found is not None
        super()._advance(connection, replace(record, revision=found.revision), **values)


class Forgetful(Rows[Any]):
    """Intents are not kept."""

    def write_intent(self, record: Record[Any], intent: Mapping[str, Any]) -> Record[Any]:
        written = super().write_intent(record, intent)
        with self._engine.begin() as connection:
            connection.execute(update(resources).where(*self._named(record.id)).values(intent=None))
        return written


class Doubling(Registry):
    """A run that has registered is not adopted."""

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


def noticed(deeds: Deeds, life: Life, point: str, disturb: Callable[[int], Fated]) -> list[str]:
    """The transitions whose disturbance the check notices."""
    expected, moves = deeds.undisturbed(life)
    found = []
    for number, move in enumerate(moves):
        if point in move.points:
            try:
                deeds.disturbed(life, disturb(number), expected)
            except AssertionError:
                found.append(move.target)
    return found


@pytest.mark.parametrize("point", ["before intent", "before commit"])
def test_the_check_notices_that_compare_and_swap_is_gone(new_world: NewWorld, point: str) -> None:
    deeds = Deeds(new_world, Parts(rows=Blind))
    for life in (REGISTERED, PROMOTED):
        assert noticed(deeds, life, point, functools.partial(rivalled, life, point=point))


def test_the_check_notices_names_that_another_life_would_not_find(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with a random part, the same within one life."""

    @functools.cache
    def name(run: str, stage: str, attempt: int) -> str:
        return f"{run}-{stage}-{attempt}-{secrets.token_hex(4)}"

    class Newborn(Rows[Any]):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            name.cache_clear()

    monkeypatch.setattr(shared.domain.run, "attempt_name", name)
    deeds = Deeds(new_world, Parts(rows=Newborn))
    for point in ("after intent", "after the effect", "before commit", "after commit"):
        assert noticed(deeds, REGISTERED, point, functools.partial(dying, "run", point=point))


def test_the_check_notices_that_intents_are_gone(new_world: NewWorld) -> None:
    """Without them the pass after the death decides anew, at another time than that at which the events were cut."""
    with pytest.raises(AssertionError, match="of an event in 0 snapshots"):
        check_snapshots(new_world(Parts(rows=Forgetful)), "after the effect")


def test_the_check_notices_that_a_run_registers_twice(new_world: NewWorld) -> None:
    deeds = Deeds(new_world, Parts(registry=Doubling))
    assert noticed(deeds, REGISTERED, "before commit", functools.partial(dying, "run", point="before commit")) == ["registered"]


def test_the_check_notices_traffic_that_moves_twice(new_world: NewWorld) -> None:
    deeds = Deeds(new_world, Parts(routes=Restless))
    assert noticed(deeds, PROMOTED, "before commit", functools.partial(dying, "rollout", point="before commit")) == [
        "canary",
        "canary",
        "promoted",
    ]
