"""The one loop, on the real stores: a pass does what was decided, once, and a pass that finds nothing writes nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, update

from services.control.reconcile import Reconciler, Simple
from services.store.resources import SqlResources
from services.store.tables import resources
from shared.contracts.records import RetrainerSpec
from shared.domain.errors import Stale, Unavailable
from shared.domain.machine import Decision, Edge, Machine, Request
from shared.domain.run import STAGES, Job
from shared.domain.triggers import RetrainerStatus
from shared.ports import Record, RetrainerRecord
from shared.telemetry import metrics
from tests.support.simulated_platform import NAME, NOW, Fate, World


def test_a_row_that_rests_is_not_even_looked_at(world: World) -> None:
    world.apply()
    world.serve(world.version())
    world.plane().ensure()
    plane = world.plane()
    plane.tick("retrainer")
    asked = world.signals.asked
    for _ in range(9):
        world.clock.pass_by(milliseconds=100)
        plane.tick("retrainer")
    assert world.signals.asked == asked
    world.clock.pass_by(milliseconds=100)
    plane.tick("retrainer")
    assert world.signals.asked == asked + 1


def test_a_request_is_taken_up_though_the_row_rests(world: World) -> None:
    world.plays["train"] = ["hang"]
    world.start_run()
    plane = world.plane()
    world.until(plane, "train", "run")
    plane.tick("run")
    world.ask("cancel")
    plane.tick("run")
    assert world.row().status.state == "cancelled"
    assert world.executor.stopped == ["r1-train-1"]


def lose_a_manifest(world: World) -> Path:
    """The train stage is published, and what the etl stage published can't be read: the run rests after a fault."""
    world.start_run()
    plane = world.plane()
    world.until(plane, "train", "run")
    path = world.folder / "artifacts/manifests/r1-etl-1.json"
    path.rename(path.with_suffix(".lost"))
    world.publish("train", "r1-train-1")
    return path


def test_a_request_is_taken_up_though_the_row_rests_after_a_fault(world: World, caplog: pytest.LogCaptureFixture) -> None:
    path = lose_a_manifest(world)
    plane = world.plane()
    plane.tick("run")
    assert "manifest of r1-etl-1: not found in" in caplog.text
    path.with_suffix(".lost").rename(path)
    plane.tick("run")
    assert world.row().status.state == "train", "it rests"
    world.ask("cancel")
    plane.tick("run")
    assert world.row().status.state == "cancelled"


def test_a_run_whose_artifacts_cannot_be_read_can_still_be_cancelled(world: World) -> None:
    lose_a_manifest(world)
    world.ask("cancel")
    world.plane().tick("run")
    assert world.row().status.state == "cancelled"


# Conflicts


@pytest.mark.parametrize("point", ["before intent", "after intent", "after the effect", "before commit"])
def test_a_request_that_arrives_in_the_middle_of_a_pass_is_not_lost(world: World, point: str) -> None:
    world.start_run()
    plane = world.plane(Fate("run", 1, point, lambda: world.ask("cancel")))
    world.until(plane, "cancelled", "run")
    assert world.path()[-1] == "cancelled"
    assert world.path().count("train") == (0 if point == "before intent" else 1)
    assert max(world.executor.calls.values()) == 1
    assert all(world.executor.observe(name) != Job("running") for name in world.executor.calls)


@pytest.mark.parametrize("point", ["after intent", "after the effect", "before commit"])
def test_a_request_that_comes_too_late_for_an_ending_leaves_a_trace(world: World, point: str) -> None:
    world.start_run()
    plane = world.plane(Fate("run", 6, point, lambda: world.ask("cancel")))
    world.until(plane, "registered", "run")
    assert world.row().request is None
    assert any("cancel" in entry.reason for entry in world.runs.history("r1"))


@pytest.mark.parametrize("point", ["after intent", "before commit"])
def test_a_request_that_is_still_to_be_answered_is_not_said_to_be_late(world: World, point: str) -> None:
    world.start_run()
    world.until(world.plane(Fate("run", 1, point, lambda: world.ask("cancel"))), "cancelled", "run")
    assert [entry.reason for entry in world.runs.history("r1")] == ["created", "", "", "cancel by ada"]


def test_somebody_elses_commit_between_read_and_commit_is_not_undone(world: World) -> None:
    world.start_run()
    plane = world.plane(Fate("run", 0, "before intent", lambda: world.plane().tick("run")))
    plane.tick("run")
    assert world.row().status.state == "etl"
    assert world.path() == ["pending", "etl"]
    assert world.row().revision == 2
    world.until(plane, "registered", "run")
    assert world.path() == ["pending", *STAGES, "registered"]
    assert max(world.executor.calls.values()) == 1


# Faults


class Toy(Simple[Any, Any]):
    """The smallest Kind: its decision is whatever the test says."""

    machine = Machine("toy", "watching", (Edge("watching", "done", "never"),))
    status_type: Any = RetrainerStatus
    effect_type: Any = str

    def __init__(self, world: World) -> None:
        self.store: SqlResources[RetrainerStatus, RetrainerSpec] = world.retrainers
        self.looks: list[str] = []
        self.faults: dict[str, Exception] = {}
        self.decision: Callable[[RetrainerStatus], Decision[RetrainerStatus, str]] = Decision

    def add(self, id: str) -> None:
        self.store.create(Record(id, NAME, RetrainerSpec(), RetrainerStatus(), NOW, NOW), "ada")

    def observe(self, record: RetrainerRecord) -> None:
        self.looks.append(record.id)
        if record.id in self.faults:
            raise self.faults[record.id]

    def decide(self, record: RetrainerRecord, observation: None, now: datetime) -> Decision[RetrainerStatus, str]:
        return self.decision(record.status)

    def act(self, record: RetrainerRecord, following: RetrainerStatus, effect: str) -> None:
        """Nothing."""

    def committed(self, record: RetrainerRecord, following: RetrainerStatus) -> None:
        """Nothing."""


def test_a_row_that_fails_does_not_stop_the_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy(world)
    for id in ("a", "b", "c"):
        toy.add(id)
    toy.faults["a"] = Unavailable("the executor is away")
    Reconciler(toy, world.clock).tick()
    assert toy.looks == ["a", "b", "c"]
    assert "toy: pass failed retry_seconds=0.5 error=the executor is away" in caplog.text


def test_a_row_that_keeps_failing_is_tried_ever_more_rarely_and_goes_on_when_it_can(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    toy = Toy(world)
    toy.add("a")
    toy.faults["a"] = ValueError("a bug")
    reconciler = Reconciler(toy, world.clock)
    times = []
    for _ in range(1200):
        before = len(toy.looks)
        reconciler.tick()
        if len(toy.looks) > before:
            times.append((world.clock.now() - NOW).total_seconds())
        world.clock.pass_by(milliseconds=100)
    pauses = [round(after - before, 1) for before, after in itertools.pairwise(times)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    del toy.faults["a"]
    world.clock.pass_by(seconds=30)
    reconciler.tick()
    toy.faults["a"] = ValueError("another bug")
    world.clock.pass_by(seconds=1)
    reconciler.tick()
    looks = len(toy.looks)
    world.clock.pass_by(milliseconds=500)
    reconciler.tick()
    assert len(toy.looks) == looks + 1, "one good look wipes the slate clean"


def test_a_write_of_another_one_during_a_failing_pass_wipes_the_slate_clean(world: World, caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy(world)
    toy.add("a")
    toy.faults["a"] = Unavailable("the executor is away")
    reconciler = Reconciler(toy, world.clock)
    for _ in range(5):
        reconciler.tick()
        world.clock.pass_by(seconds=30)
    assert "retry_seconds=8.0 " in caplog.records[-1].message
    observe = toy.observe

    def overtaken(record: RetrainerRecord) -> None:
        toy.store.ask("a", Request("trigger", "ada"), world.clock.now())
        observe(record)

    toy.observe = overtaken  # type: ignore[method-assign]
    reconciler.tick()
    assert "retry_seconds=0.5 " in caplog.records[-1].message
    looks = len(toy.looks)
    toy.observe = observe  # type: ignore[method-assign]
    world.clock.pass_by(milliseconds=500)
    reconciler.tick()
    assert len(toy.looks) == looks + 1
    assert "retry_seconds=1.0 " in caplog.records[-1].message


def test_a_write_of_another_one_between_two_failing_passes_starts_the_count_of_faults_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    toy = Toy(world)
    toy.add("a")
    toy.faults["a"] = Unavailable("the executor is away")
    reconciler = Reconciler(toy, world.clock)
    for _ in range(5):
        reconciler.tick()
        world.clock.pass_by(seconds=30)
    assert "retry_seconds=8.0 " in caplog.records[-1].message
    toy.store.ask("a", Request("trigger", "ada"), world.clock.now())
    reconciler.tick()
    assert "retry_seconds=0.5 " in caplog.records[-1].message


def test_a_commit_wipes_the_slate_clean_too(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    toy = Toy(world)
    toy.add("a")
    toy.faults["a"] = ValueError("a bug")
    reconciler = Reconciler(toy, world.clock)
    for _ in range(6):
        reconciler.tick()
        world.clock.pass_by(seconds=30)
    del toy.faults["a"]
    toy.decision = lambda status: Decision(RetrainerStatus(reason="written"))
    assert reconciler.tick() == 1
    toy.faults["a"] = ValueError("another bug")
    reconciler.tick()
    looks = len(toy.looks)
    world.clock.pass_by(milliseconds=500)
    reconciler.tick()
    assert len(toy.looks) == looks + 1


def test_a_transition_that_the_table_does_not_have_changes_nothing(world: World) -> None:
    toy = Toy(world)
    toy.add("a")
    toy.decision = lambda status: Decision(RetrainerStatus("nowhere"))
    assert Reconciler(toy, world.clock).tick() == 0
    assert world.retrainers.get("a").status == RetrainerStatus()


def test_a_transition_that_the_table_does_not_have_is_said_and_rests(world: World, caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy(world)
    toy.add("a")
    toy.decision = lambda status: Decision(RetrainerStatus("nowhere"))
    reconciler = Reconciler(toy, world.clock)
    reconciler.tick()
    reconciler.tick()
    assert "no transition from watching to nowhere" in caplog.text
    assert toy.looks == ["a"]


def test_a_lost_race_is_not_a_fault(world: World, caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy(world)
    toy.add("a")
    toy.faults["a"] = Stale("somebody was faster")
    reconciler = Reconciler(toy, world.clock)
    reconciler.tick()
    reconciler.tick()
    assert toy.looks == ["a", "a"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_row_that_rests_is_not_even_read(world: World) -> None:
    toy = Toy(world)
    for id in ("a", "b"):
        toy.add(id)
    reconciler = Reconciler(toy, world.clock)
    reconciler.tick()
    read: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            read.append(statement)

    event.listen(world.engine, "before_cursor_execute", note)
    reconciler.tick()
    assert len(read) == 1
    assert "resources.spec" not in read[0]
    assert "resources.status" not in read[0]
    toy.store.ask("a", Request("trigger", "ada"), NOW)
    read.clear()
    reconciler.tick()
    assert toy.looks == ["a", "b", "a"]
    assert len(read) == 2, "what is due, and the one row that has changed"


def test_a_row_that_cannot_be_read_stops_nothing_but_itself_and_is_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy(world)
    for id in ("a", "b", "c"):
        toy.add(id)
    with world.engine.begin() as connection:
        connection.execute(update(resources).where(resources.c.id == "b").values(status={"state": "watching", "fired": "often"}))
    before = metrics.RECONCILE_FAULTS.labels("toy")._value.get()
    reconciler = Reconciler(toy, world.clock)
    for _ in range(50):
        reconciler.tick()
        world.clock.pass_by(seconds=10)
    assert toy.looks == ["a", "c"] * 50
    assert caplog.text.count("retrainer 'b' (watching) has a stored form that this release cannot read") == 1
    assert metrics.RECONCILE_FAULTS.labels("toy")._value.get() == before + 1
    with world.engine.begin() as connection:
        mended = {"status": {"state": "watching"}, "revision": 1}
        connection.execute(update(resources).where(resources.c.id == "b").values(mended))
    reconciler.tick()
    assert toy.looks[-3:] == ["a", "b", "c"]


class Uncertain(SqlResources[RetrainerStatus, RetrainerSpec]):
    """Commits, and then says that it doesn't know: the connection was lost in that moment."""

    faults = 1

    def commit(self, *arguments: Any, **values: Any) -> RetrainerRecord:
        written = super().commit(*arguments, **values)
        if self.faults:
            self.faults -= 1
            raise Unavailable("the connection was lost")
        return written


def test_a_commit_of_unknown_outcome_is_read_again_and_not_done_twice(world: World) -> None:
    toy = Toy(world)
    toy.store = Uncertain(world.engine, "retrainer", RetrainerStatus, RetrainerSpec)
    toy.add("a")
    toy.decision = lambda status: Decision(RetrainerStatus(fired=1) if not status.fired else status)
    reconciler = Reconciler(toy, world.clock)
    assert reconciler.tick() == 0
    world.clock.pass_by(seconds=1)
    assert reconciler.tick() == 0
    assert toy.store.get("a").status.fired == 1
    assert toy.store.get("a").revision == 1
