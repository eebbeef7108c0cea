"""Detects without a query whether a database may have changed.

If only this process writes to a SQLite file, transactions are counted. If other processes may write too, the database counts as changed
at any time. Transactions with the execution option `quiet` (heartbeats) are not counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event

_WRITES = "eyas.writes"


class Changes:
    def __init__(self, engine: Engine, *, alone: bool) -> None:
        """`alone`: no other process writes to the database."""
        self._numbers = itertools.count(1)
        self._listeners: list[Callable[[], None]] = []
        self._committed = 0
        self._counts = alone and engine.dialect.name == "sqlite"
        if self._counts:
            event.listen(engine, "begin", self._begin)
            event.listen(engine, "checkin", self._end)

    def mark(self) -> object:
        """Returns a value that equals an earlier mark only if nothing was committed in between."""
        return self._committed if self._counts else object()

    def listen(self, notice: Callable[[], None]) -> None:
        """Adds a function to call after each commit of this process, on the committing thread."""
        self._listeners.append(notice)

    def _begin(self, connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("read_only", False) and not options.get("quiet", False):
            connection.connection.record_info[_WRITES] = True  # type: ignore[index]

    def _end(self, _connection: Any, record: Any) -> None:
        """Counts after the commit, so that a reader of the new mark sees the committed rows. A rollback counts too."""
        if record.record_info.pop(_WRITES, False):
            self._committed = next(self._numbers)
            for notice in self._listeners:
                notice()
