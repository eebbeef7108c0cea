"""One SQLite database for each test process, empty at the start of each test that uses it."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine, event

from services.featurestore.tables import metadata as feature_tables
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from services.store.tables import metadata

_TABLES = [*metadata.tables, *feature_tables.tables, "sqlite_sequence"]
_EMPTY = ";".join(["BEGIN IMMEDIATE", *(f"DELETE FROM {table}" for table in _TABLES if table != "change_counters"), "COMMIT"])


def empty_engine() -> Engine:
    """Empties the database, so it serves one test at a time: opening a new database takes longer than most tests."""
    engine = _engine()
    connection: Any = engine.raw_connection()
    connection.executescript(_EMPTY)
    connection.close()
    return engine


@cache
def _engine() -> Engine:
    folder = TemporaryDirectory(prefix="eyas-test-")
    engine = open_engine(sqlite_url(Path(folder.name) / "eyas.db"))
    event.listen(engine, "connect", lambda connection, _record: connection.execute("PRAGMA synchronous=OFF"))  # no wait for the disk
    upgrade(engine)
    atexit.register(folder.cleanup)
    atexit.register(engine.dispose)
    return engine
