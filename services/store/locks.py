"""Locks for writers.

SQLite makes waiting writers sleep and retry: under load one thread in ten waits for seconds while the others never wait.
Within this process a lock passes the right to write on at once; between processes SQLite's own retries remain.

PostgreSQL's writers run concurrently: writers that read, decide and write about one subject take an advisory lock on its name.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from sqlalchemy import Connection, Engine, event, func, select

from shared.domain.errors import Unavailable

_TURN = "eyas.turn"


def take_turn(connection: Connection, *name: str) -> None:
    """Takes the lock on `name` until the transaction ends. Must be the transaction's first statement, and its only lock.

    Does nothing on SQLite, where a writer has already waited for all other writers.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_number(name))))


def share_turn(connection: Connection, *name: str) -> None:
    """Takes the lock on `name` beside others that share it. For writers whose commits `all_committed` waits for."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock_shared(_number(name))))


def all_committed(connection: Connection, *name: str) -> bool:
    """Returns whether no transaction shares the lock on `name`: later statements see all rows with smaller numbers. Never waits."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.execute(select(func.pg_try_advisory_xact_lock(_number(name)))).scalar_one())


def _number(name: tuple[str, ...]) -> int:
    return int.from_bytes(hashlib.sha256("/".join(name).encode()).digest()[:8], signed=True)


class WriteLock:
    """The right to write to SQLite, held from a transaction's start until its connection is back in the pool."""

    def __init__(self, engine: Engine, patience: float) -> None:
        self._lock = threading.Lock()
        self._patience = patience
        self._engine = engine
        event.listen(engine, "checkin", self._give_back)

    def begin(self, connection: Connection) -> None:
        info = connection.connection.record_info
        assert info is not None
        if not info.get(_TURN):
            if not self._lock.acquire(timeout=self._patience):
                reason = f"other writers took more than {self._patience:g} s"
                raise Unavailable(f"database {self._engine.url.database}: {reason}", answer=f"the database is busy: {reason}")
            info[_TURN] = True
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _give_back(self, _connection: Any, record: Any) -> None:
        if record.record_info.pop(_TURN, False):
            self._lock.release()
