"""A control plane in a process of its own: the real loop over the real stores, until no row is left to lead."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Engine

from services.control.replica import Replica
from services.store.lease_time import use_clock
from services.store.leases import SqlLeases
from tests.crash.matrix.outside import Hand, Outside
from tests.crash.matrix.points import Points, Rows
from tests.crash.matrix.wire import Clock, Local, Wire

TERM = timedelta(seconds=3)
"""Of a replica's lease: those that take over wait for its end."""


@dataclass(frozen=True)
class Plane:
    rows: Rows
    tick: Callable[[], int]
    """One pass over everything; how many rows were written."""
    replica: Replica | None = None


def replica(engine: Engine, clock: Clock) -> Replica:
    """One of several."""
    use_clock(engine, clock)
    return Replica(f"replica-{os.getpid()}", SqlLeases(engine), clock, TERM)


class Telling(logging.Handler):
    """What the product calls an error is the world's to know."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(logging.ERROR)
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._wire.send(call="said", text=f"{record.getMessage()} {error!r}")


def reign(build: Callable[[], Plane], clock: Clock, points: Points) -> None:
    logging.getLogger("services").handlers = [Telling(points.wire)]
    points.begin()
    plane = build()
    beat_at = clock.now()
    while True:
        if plane.replica is not None and clock.now() >= beat_at:
            plane.replica.beat()
            beat_at = clock.now() + plane.replica.beat_every
        if plane.tick() == 0:
            if not plane.rows.list(active=True, limit=1):
                return
            points.wire.ask(call="rest")


def lead(build: Callable[[Points], Plane], outside: Outside) -> None:
    """In this very process."""
    plane = build(Points(Local(lambda wire, words: outside.answer(Hand(0, wire), words))))
    while plane.rows.list(active=True, limit=1):
        if plane.tick() == 0:
            outside.pass_by(1)
