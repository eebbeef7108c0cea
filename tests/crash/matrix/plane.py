"""A control plane in a process of its own: the real loop over the real stores, with points at which it may die or wait.

The points are in thin subclasses of the adapters; nothing of the product is changed. The mutants are here too: each takes
one safeguard away.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, update

import shared.domain.run
from services.control.bases import Bases
from services.control.reconcile import Reconciler
from services.control.replica import Replica
from services.control.runs import Runs
from services.control.turns import Turns
from services.eventlog.sql import SqlEventLog
from services.store.leases import SqlLeases
from services.store.outputs import SqlStageOutputs
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.tables import resources
from shared.artifacts import FsspecArtifacts
from shared.contracts.codec import decode
from shared.contracts.stage import StageSpec
from shared.domain.rollout import RolloutStatus
from shared.domain.run import Job, RunEffect, RunStatus, StartStage
from shared.ports import Record, Version
from tests.crash.matrix.wire import Clock, Wire

BEFORE_INTENT, AFTER_INTENT, AFTER_EFFECT, BEFORE_COMMIT, AFTER_COMMIT = (
    "before intent",
    "after intent",
    "after the effect",
    "before commit",
    "after commit",
)
POINTS = (BEFORE_INTENT, AFTER_INTENT, AFTER_EFFECT, BEFORE_COMMIT, AFTER_COMMIT)
READ, CALL = "read", "call"
"""Two more places, where replicas may meet: when they have read what is due, and before they touch the world."""
MEETINGS = ("", READ, BEFORE_INTENT, CALL, BEFORE_COMMIT)
"""Where the replicas wait for each other in a round: nowhere, or each time at the same place."""
TERM = timedelta(seconds=3)
"""Of a replica's lease: those that take over wait for its end."""
MUTANTS = ("names", "swap", "intent", "order", "adoption")


@dataclass
class Points:
    """What a process does at the points that it comes by; this one goes on."""

    wire: Wire

    def reach(self, point: str) -> None:
        pass

    def moved(self, source: str, target: str, effects: Sequence[str], changed: Sequence[str]) -> None:
        """A commit is done; `changed`: fields of the status."""


@dataclass
class Watched(Points):
    """An undisturbed life: tells the world each move, with the calls to the world that it made."""

    calls: int = 0

    def reach(self, point: str) -> None:
        self.calls += point == AFTER_EFFECT

    def moved(self, source: str, target: str, effects: Sequence[str], changed: Sequence[str]) -> None:
        self.wire.send(call="moved", source=source, target=target, effects=list(effects), changed=list(changed), calls=self.calls)
        self.calls = 0


@dataclass
class Doomed(Points):
    """Dies at a point of one move: kill -9, of itself, so that it is exactly there. `nth`: at the how-manieth such point of the move."""

    move: int = 0
    point: str = ""
    nth: int = 1
    moves: int = 0

    def reach(self, point: str) -> None:
        if (self.moves, point) == (self.move, self.point):
            self.nth -= 1
            if self.nth == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def moved(self, source: str, target: str, effects: Sequence[str], changed: Sequence[str]) -> None:
        self.moves += 1


@dataclass
class Racing(Points):
    """Dawdles as its seed has it, and waits for the other at one place."""

    meeting: str = ""
    seed: str = ""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def reach(self, point: str) -> None:
        if point == self.meeting:
            self.wire.ask(call="meet")
        if self._random.random() < 0.3:
            time.sleep(self._random.random() * 0.001)


class Rows(SqlResources[Any]):
    """The real store of runs, with the points."""

    def __init__(self, engine: Engine, points: Points) -> None:
        super().__init__(engine, "run", RunStatus)
        self._points = points

    def get(self, id: str) -> Record[Any]:
        found = super().get(id)
        self._points.reach(READ)
        return found

    def write_intent(self, record: Record[Any], intent: Mapping[str, Any]) -> Record[Any]:
        self._points.reach(BEFORE_INTENT)
        written = super().write_intent(record, intent)
        self._points.reach(AFTER_INTENT)
        return written

    def commit(self, record: Record[Any], status: Any, **values: Any) -> Record[Any]:
        self._points.reach(BEFORE_COMMIT)
        written = super().commit(record, status, **values)
        self._points.reach(AFTER_COMMIT)
        effects = [effect["kind"] for effect in (record.intent or {}).get("effects", ())]
        changed = [one.name for one in fields(status) if getattr(status, one.name) != getattr(record.status, one.name)]
        self._points.moved(record.status.state, status.state, effects, changed)
        return written


class Rollouts(SqlResources[Any]):
    """The store of rollouts, of which a run makes one: a call to the world."""

    def __init__(self, engine: Engine, points: Points) -> None:
        super().__init__(engine, "rollout", RolloutStatus)
        self._points = points

    def create(self, record: Record[Any], actor: str) -> Record[Any]:
        self._points.reach(CALL)
        made = super().create(record, actor)
        self._points.reach(AFTER_EFFECT)
        return made


class Registry(SqlRegistry):
    def __init__(self, engine: Engine, points: Points) -> None:
        super().__init__(engine)
        self._points = points

    def register(self, version: Version) -> Version:
        self._points.reach(CALL)
        made = super().register(version)
        self._points.reach(AFTER_EFFECT)
        return made


class WorldExecutor:
    """Implements Executor: jobs are the world's."""

    def __init__(self, wire: Wire, points: Points, blindly: bool = False) -> None:
        self._wire = wire
        self._points = points
        self._blindly = blindly

    def start(self, spec: StageSpec) -> None:
        self._points.reach(CALL)
        self._wire.ask(call="start", name=spec.attempt, run=spec.run, stage=spec.stage, blindly=self._blindly)
        self._points.reach(AFTER_EFFECT)

    def observe(self, attempt: str) -> Job | None:
        found = self._wire.ask(call="observe", name=attempt)["job"]
        if found is None:
            return None
        since = found.pop("since")
        return Job(**found, since=None if since is None else datetime.fromisoformat(since))

    def stop(self, attempt: str) -> None:
        self._points.reach(CALL)
        self._wire.ask(call="stop", name=attempt)
        self._points.reach(AFTER_EFFECT)

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        return "", offset


class Data:
    """Data files that never change."""

    def fingerprint(self, uri: str) -> Mapping[str, str]:
        return {uri: "1 byte"}


# One safeguard away


class Blind(Rows):
    """Compare-and-swap removed: whoever writes, wins."""

    def _advance(self, connection: Connection, record: Record[Any], **values: Any) -> None:
        here = update(resources).where(*self._named(record.id))
        connection.execute(here.values(**values, revision=resources.c.revision + 1))


class Forgetful(Rows):
    """Intents are not kept."""

    def write_intent(self, record: Record[Any], intent: Mapping[str, Any]) -> Record[Any]:
        written = super().write_intent(record, {})
        with self._engine.begin() as connection:
            connection.execute(update(resources).where(*self._named(record.id)).values(intent=None))
        return replace(written, intent=intent)


class Hasty(Rows):
    """Effects come before the intent. (The loop does them once more: that changes nothing.)"""

    act: Callable[[Record[Any], Any, Any], None]

    def write_intent(self, record: Record[Any], intent: Mapping[str, Any]) -> Record[Any]:
        for effect in intent["effects"]:
            self.act(record, decode(RunStatus, intent["next"]), decode(RunEffect, effect))
        return super().write_intent(record, intent)


class Adopting(Runs):
    """Adoption removed: a stage is started whatever is there."""

    def act(self, record: Record[RunStatus], following: RunStatus, effect: RunEffect) -> None:
        if isinstance(effect, StartStage):
            self._executor.start(self._stage(record, following, effect))
        else:
            super().act(record, following, effect)


@functools.cache
def nameless(run: str, stage: str, attempt: int) -> str:
    """A name that no other process would find."""
    return f"{run}-{stage}-{attempt}-{secrets.token_hex(4)}"


class Telling(logging.Handler):
    """What the product calls an error is the world's to know."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(logging.ERROR)
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._wire.send(call="said", text=f"{record.getMessage()} {error!r}")


def build(
    engine: Engine, artifacts: str, clock: Clock, points: Points, mutant: str = "", replica: Replica | None = None
) -> tuple[Rows, Reconciler[Any, Any, Any]]:
    if mutant == "names":
        vars(shared.domain.run)["attempt_name"] = nameless
    rows = {"swap": Blind, "intent": Forgetful, "order": Hasty}.get(mutant, Rows)(engine, points)
    kind = {"adoption": Adopting}.get(mutant, Runs)
    executor = WorldExecutor(points.wire, points, blindly=mutant == "adoption")
    registry, rollouts, events = Registry(engine, points), Rollouts(engine, points), SqlEventLog(engine)
    bases = Bases(rows, registry, FsspecArtifacts(artifacts), SqlStageOutputs(engine), Data(), "1.0 test")
    runs = kind(rollouts, executor, events, clock, ("/data",), bases, Turns(rows, clock, limit=4))
    if isinstance(rows, Hasty):
        rows.act = runs.act
    return rows, Reconciler(runs, clock, replica)


def reign(open_it: Callable[[], Engine], artifacts: str, clock: Clock, points: Points, mutant: str, claims: bool) -> None:
    """Until no run is left to lead. With claims: of the rows that it has claimed, as one of several; without, of all."""
    logging.getLogger("services").handlers = [Telling(points.wire)]
    engine = open_it()
    replica = Replica(f"replica-{os.getpid()}", SqlLeases(engine), clock, TERM) if claims else None
    rows, reconciler = build(engine, artifacts, clock, points, mutant, replica)
    beat_at = clock.now()
    while True:
        if replica is not None and clock.now() >= beat_at:
            replica.beat()
            beat_at = clock.now() + replica.beat_every
        if reconciler.tick() == 0:
            if not rows.list(active=True, limit=1):
                return
            points.wire.ask(call="rest")
