"""Change counter: increases in every transaction that changes a route or a recommender. Code that needs all of them many times a second
reads the counter, and reads the rows only when the counter has increased."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection, select, update

from services.store.tables import change_counters

T = TypeVar("T")

STATE = "state"
"""Name of the counter of routes and recommenders."""
_AGAIN = 10.0
"""Seconds after which the rows are read anyway: during an upgrade an older control plane may not raise the counter."""
_MARK = select(change_counters.c.value).where(change_counters.c.name == STATE)
_RAISED = update(change_counters).where(change_counters.c.name == STATE).values(value=change_counters.c.value + 1)


def raise_mark(connection: Connection) -> None:
    """Raises the counter. Must be the transaction's last statement: other writers wait for this row, which could cause deadlocks."""
    connection.execute(_RAISED)


class Cached(Generic[T]):
    """Cache of the last read: returns the same object while nothing has changed."""

    def __init__(self, read: Callable[[Connection], T]) -> None:
        self._read = read
        self._cached: tuple[int | None, float, T] | None = None

    def of(self, connection: Connection) -> T:
        """Returns the value; in a `read_only` transaction, where the rows are never older than the counter."""
        mark, now, cached = connection.execute(_MARK).scalar(), time.monotonic(), self._cached
        if cached is not None and cached[0] == mark and now < cached[1]:
            return cached[2]
        value = self._read(connection)
        if cached is not None and cached[2] == value:
            value = cached[2]
        self._cached = mark, now + _AGAIN, value
        return value
