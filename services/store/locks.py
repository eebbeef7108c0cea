"""Writers take turns.

SQLite lets whoever asks at the right moment write, and makes the others sleep and try again: under load one thread in
ten waits for seconds while the rest never wait. Within this process a lock hands the turn on at once; between
processes SQLite's own waiting remains.

PostgreSQL's writers run side by side: those that read, decide and write about one thing take turns by its name.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from sqlalchemy import Connection, Engine, event, func, select

from shared.domain.errors import Unavailable

_TURN = "eyas.turn"


def take_turn(connection: Connection, *name: str) -> None:
    """Waits until nobody else writes about this; held to the transaction's end. Its first statement, and the only turn that it takes.

    On SQLite whoever writes has waited for all others already.
    """
    if connection.dialect.name == "postgresql":
        digest = hashlib.sha256("/".join(name).encode()).digest()
        connection.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], signed=True))))


class Turns:
    """The right to write, kept from a transaction's start until its connection is back in the pool."""

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
