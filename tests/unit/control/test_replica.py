"""Several control planes on one database: each row has one that looks after it, and its successor is found."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.control.reconcile import Reconciler
from services.control.replica import TERM, Replica
from services.store.leases import SqlLeases
from shared.ports import REPLICAS
from tests.support.simulated_platform import World
from tests.unit.control.test_reconcile import Toy


class Life:
    """A replica, and what it looked at."""

    def __init__(self, world: World, holder: str) -> None:
        self.replica = Replica(holder, SqlLeases(world.open()), world.clock)
        self.toy = Toy(world)
        self.reconciler = Reconciler(self.toy, world.clock, self.replica)
        self.steps: list[str] = []
        self.step = self.replica.single("placement", lambda: self.steps.append(holder))

    def looks(self) -> list[str]:
        self.toy.looks.clear()
        self.reconciler.tick()
        return list(self.toy.looks)


def lives(world: World, *holders: str, rows: int = 6) -> list[Life]:
    found = [Life(world, holder) for holder in holders]
    for n in range(rows):
        found[0].toy.add(f"row-{n}")
    for one in found:
        one.replica.beat()
    return found


def rest(world: World, *beating: Life, seconds: float = 4) -> None:
    world.clock.pass_by(seconds=seconds)
    for one in beating:
        one.replica.beat()


def test_replicas_share_the_rows_and_every_row_is_looked_at_by_one(world: World) -> None:
    a, b = lives(world, "a", "b")
    first, second = a.looks(), b.looks()
    assert (len(first), len(second)) == (3, 3)
    assert sorted(first + second) == [f"row-{n}" for n in range(6)]
    rest(world, a, b)
    assert (a.looks(), b.looks()) == (first, second), "and it stays so"


def test_a_replica_that_comes_gets_its_share(world: World) -> None:
    a, b = lives(world, "a", "b", "c")[:2]
    world.clock.pass_by(seconds=TERM.total_seconds())
    a.replica.beat()
    assert len(a.looks()) == 6
    rest(world, a, b)
    a.looks()
    assert len(b.looks()) == 3
    rest(world, a, b)
    assert len(a.looks()) == 3


def test_a_replica_that_dies_is_succeeded_when_its_lease_is_over(world: World) -> None:
    a, b = lives(world, "a", "b")
    a.looks(), b.looks()
    for _ in range(3):
        rest(world, b)
        assert len(b.looks()) == 3, "it may still live"
    rest(world, b)
    assert len(b.looks()) == 6
    assert not a.replica.alive
    assert a.looks() == [], "who is taken for dead keeps still"
    rest(world, a, b)
    b.looks()
    assert len(a.looks()) == 3, "it lived after all"


def test_a_clean_shutdown_hands_over_at_once(world: World) -> None:
    a, b = lives(world, "a", "b")
    a.looks(), b.looks()
    a.step()
    b.step()
    assert (a.steps, b.steps) == (["a"], [])
    a.replica.close()
    assert len(b.looks()) == 3, "those that are new to it"
    assert len(b.toy.store.due(world.clock.now(), 10, "b")) == 6
    b.step()
    assert b.steps == ["b"]
    a.replica.beat()
    a.step()
    assert (a.replica.alive, a.steps) == (False, ["a"]), "what is closed stays closed"


def test_a_step_is_done_by_one_replica_until_it_dies(world: World) -> None:
    a, b = lives(world, "a", "b")
    for _ in range(9):
        a.step()
        b.step()
        rest(world, a, b)
    assert (len(a.steps), len(b.steps)) == (9, 0)
    a.step()
    for _ in range(4):
        b.step()
        rest(world, b)
    a.step()
    b.step()
    assert (len(a.steps), len(b.steps)) == (10, 1)


def test_a_long_step_does_not_cost_its_lease_while_the_heart_beats(world: World) -> None:
    a, b = lives(world, "a", "b")

    def long() -> None:
        for _ in range(20):
            rest(world, a, b)
            b.replica.single("long", lambda: pytest.fail("two at once"))()

    a.replica.single("long", long)()


def test_who_waits_for_its_turn_writes_nothing(world: World) -> None:
    a, b = lives(world, "a", "b")
    a.step()
    a.looks(), b.looks()
    world.writes.clear()
    for _ in range(100):
        a.step()
        b.step()
        a.looks(), b.looks()
        world.clock.pass_by(milliseconds=15)
    assert world.writes == []


def test_the_living_are_counted(world: World) -> None:
    a, _ = lives(world, "a", "b", rows=0)
    assert a.replica.count() == 2
    assert SqlLeases(world.engine).live(REPLICAS) == ["replica/a", "replica/b"]
    world.clock.pass_by(seconds=TERM.total_seconds())
    assert a.replica.count() == 0
    assert a.replica.beat_every == TERM / 3 > timedelta(0)


def test_a_step_that_comes_back_is_of_another_term(world: World) -> None:
    a, b = lives(world, "a", "b", rows=0)
    a.step()
    first = a.replica.term("placement")
    rest(world, a, b)
    a.step()
    assert a.replica.term("placement") == first, "it was held all the time"
    rest(world, b, seconds=60)
    b.step()
    rest(world, a, seconds=60)
    a.step()
    assert (a.steps, b.steps) == (["a"] * 3, ["b"])
    assert a.replica.term("placement") != first


@pytest.mark.parametrize("days", [100, -100])
def test_a_replica_that_died_while_the_clock_was_wrong_is_succeeded_when_it_is_set_right(world: World, days: int) -> None:
    a, b = lives(world, "a", "b", rows=2)
    world.clock.pass_by(days=days)
    a.replica.beat()
    a.step()
    assert len(a.looks()) == 2
    world.clock.pass_by(days=-days)
    assert not a.replica.alive or days < 0, "what was granted in the future is worth nothing"
    world.clock.pass_by(seconds=TERM.total_seconds())
    b.replica.beat()
    b.step()
    assert (b.steps, len(b.looks())) == (["b"], 2)
    assert b.replica.count() == 1
