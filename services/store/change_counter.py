"""A number that rises with every change of a route or of a recommender, in the transaction that makes the change. Whoever wants all of
them many times a second asks for the number, and reads them when it has risen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection, select, update

from services.store.tables import marks

T = TypeVar("T")

STATE = "state"
"""The row of routes and recommenders."""
_AGAIN = 10.0
"""Seconds after which they are read all the same: while an upgrade goes on, a control plane beside this one may raise no mark."""
_MARK = select(marks.c.value).where(marks.c.name == STATE)
_RAISED = update(marks).where(marks.c.name == STATE).values(value=marks.c.value + 1)


def raise_mark(connection: Connection) -> None:
    """The last statement of its transaction: until that ends, others who change something wait for the row, and they for nothing else."""
    connection.execute(_RAISED)


class Cached(Generic[T]):
    """What was read last: the same object as long as nothing has changed."""

    def __init__(self, read: Callable[[Connection], T]) -> None:
        self._read = read
        self._cached: tuple[int | None, float, T] | None = None

    def of(self, connection: Connection) -> T:
        """In one transaction that only reads: it sees the mark and the rows of one moment, or rows that are newer than the mark."""
        mark, now, cached = connection.execute(_MARK).scalar(), time.monotonic(), self._cached
        if cached is not None and cached[0] == mark and now < cached[1]:
            return cached[2]
        value = self._read(connection)
        if cached is not None and cached[2] == value:
            value = cached[2]
        self._cached = mark, now + _AGAIN, value
        return value
