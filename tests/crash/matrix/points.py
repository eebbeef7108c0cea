"""The points of a control plane at which it may die or wait, in thin subclasses of its stores; nothing of the product is changed.

The mutants that take a safeguard of the loop away are here too.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlalchemy import Connection, Engine, update

from services.store.resources import SqlResources
from services.store.tables import resources
from shared.contracts.codec import decode
from shared.ports import Record
from tests.crash.matrix.wire import Wire

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
BEFORE_PLACE, AFTER_PLACE = "before placing", "after placing"
"""Versions are put on the model server beside the moves: once for several of them, or for none."""
MEETINGS = ("", READ, BEFORE_INTENT, CALL, BEFORE_COMMIT)
"""Where the replicas wait for each other in a round: nowhere, or each time at the same place."""
LATE = "late"
"""Or one of them sleeps, before it touches the world, until the other has led everything to its end."""


@dataclass
class Points:
    """What a process does at the points that it comes by; this one goes on."""

    wire: Wire

    def begin(self) -> None:
        pass

    def reach(self, point: str) -> None:
        pass

    def moved(self, source: str, target: str, effects: Sequence[str], changed: Sequence[str]) -> None:
        """A commit is done; `changed`: fields of the status."""


@dataclass
class Watched(Points):
    """An undisturbed life: tells the world each move, with the calls to the world that it made, and what was placed before it."""

    calls: int = 0
    placed: int = 0

    def reach(self, point: str) -> None:
        self.calls += point == AFTER_EFFECT
        self.placed += point == AFTER_PLACE

    def moved(self, source: str, target: str, effects: Sequence[str], changed: Sequence[str]) -> None:
        what = {"source": source, "target": target, "effects": list(effects), "changed": list(changed)}
        self.wire.send(call="moved", **what, calls=self.calls, placed=self.placed)
        self.calls = self.placed = 0


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
    """Dawdles as its seed has it, and waits for the other at one place; or sleeps there, the first of them, once."""

    meeting: str = ""
    seed: str = ""
    number: int = 0
    """Which of the replicas it is."""
    _random: random.Random = field(init=False)
    _sleeps_at: str = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._sleeps_at = CALL if self.meeting == LATE else ""

    def begin(self) -> None:
        if self._sleeps_at and self.number:
            self.wire.ask(call="rest")  # the first one is ahead

    def reach(self, point: str) -> None:
        if point == self.meeting:
            self.wire.ask(call="meet")
        if point == self._sleeps_at and not self.number:
            self._sleeps_at = ""
            self.wire.ask(call="sleep")
        if self._random.random() < 0.3:
            time.sleep(self._random.random() * 0.001)


class Rows(SqlResources[Any, Any]):
    """The real store of the rows whose life it is, with the points."""

    def __init__(self, engine: Engine, points: Points, kind: str, status_type: type[Any], spec_type: type[Any]) -> None:
        super().__init__(engine, kind, status_type, spec_type)
        self._points = points

    def get(self, id: str) -> Record[Any, Any]:
        found = super().get(id)
        self._points.reach(READ)
        return found

    def write_intent(self, record: Record[Any, Any], intent: Mapping[str, Any]) -> Record[Any, Any]:
        self._points.reach(BEFORE_INTENT)
        written = super().write_intent(record, intent)
        self._points.reach(AFTER_INTENT)
        return written

    def commit(self, record: Record[Any, Any], status: Any, **values: Any) -> Record[Any, Any]:
        self._points.reach(BEFORE_COMMIT)
        written = super().commit(record, status, **values)
        self._points.reach(AFTER_COMMIT)
        effects = [effect["kind"] for effect in (record.intent or {}).get("effects", ())]
        changed = [one.name for one in fields(status) if getattr(status, one.name) != getattr(record.status, one.name)]
        self._points.moved(record.status.state, status.state, effects, changed)
        return written


# One safeguard away


class Blind(Rows):
    """Compare-and-swap removed: whoever writes, wins."""

    def _advance(self, connection: Connection, record: Record[Any, Any], **values: Any) -> None:
        here = update(resources).where(*self._named(record.id))
        connection.execute(here.values(**values, revision=resources.c.revision + 1))


class Forgetful(Rows):
    """Intents are not kept."""

    def write_intent(self, record: Record[Any, Any], intent: Mapping[str, Any]) -> Record[Any, Any]:
        written = super().write_intent(record, {})
        with self._engine.begin() as connection:
            connection.execute(update(resources).where(*self._named(record.id)).values(intent=None))
        return replace(written, intent=intent)


class Hasty(Rows):
    """Effects come before the intent. (The loop does them once more: that changes nothing.)"""

    act: Callable[[Record[Any, Any], Any, Any], None]
    effect_type: Any

    def write_intent(self, record: Record[Any, Any], intent: Mapping[str, Any]) -> Record[Any, Any]:
        for effect in intent["effects"]:
            self.act(record, decode(self._status_type, intent["next"]), decode(self.effect_type, effect))
        return super().write_intent(record, intent)


SAFEGUARDS: Mapping[str, type[Rows]] = {"swap": Blind, "intent": Forgetful, "order": Hasty}
"""Of the loop, whatever it leads."""
