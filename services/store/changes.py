"""Whether a database may have changed since a moment, without a query.

Who alone writes to a SQLite file counts the transactions. Where other processes may write as well, everything may have changed at any
time. A transaction with the execution option `quiet` changes nothing that anybody waits for: it is a heartbeat.
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
        """Equal to an earlier one only if nothing was committed in between."""
        return self._committed if self._counts else object()

    def listen(self, notice: Callable[[], None]) -> None:
        """To be called after each commit, on the thread that has committed. Commits of other processes call nobody."""
        self._listeners.append(notice)

    def _begin(self, connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("read_only", False) and not options.get("quiet", False):
            connection.connection.record_info[_WRITES] = True  # type: ignore[index]

    def _end(self, _connection: Any, record: Any) -> None:
        """After the commit: who sees the new mark reads what was committed. A transaction that was rolled back counts as well."""
        if record.record_info.pop(_WRITES, False):
            self._committed = next(self._numbers)
            for notice in self._listeners:
                notice()
