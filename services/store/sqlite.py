"""SQLite, and the guarantees that every SQL adapter relies on.

SQLite's defaults are not sufficient: without WAL a reader blocks the writer, and a transaction that reads first and writes
later can't wait for another writer (SQLite returns "locked" at once to avoid a deadlock). So transactions begin
IMMEDIATE: they wait up to `_PATIENCE` seconds, then see the newest state and keep it. A transaction with the execution
option `read_only` begins deferred and waits for no writer.

A commit survives the death of the process. With `synchronous=NORMAL` a power failure may lose the newest commits, but
never the database's consistency. Deleted rows are overwritten, so that forgotten users leave no bytes in free pages.
`database_files` detects files that are moved or deleted.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.engine import ExceptionContext

from services.store.database_files import AWAY, DatabaseFiles, files_of, guarded_connection
from services.store.db_metrics import measure
from services.store.locks import WriteLock
from shared.domain.errors import Invalid, Unavailable, Unsupported

_PATIENCE = 10.0
"""Seconds that a writer waits for earlier writers."""
_THREADS = 64
"""Maximum number of connections: more than the threads of the API, the gateway and the control loops together."""
_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMSIZE})


def open_engine(url: URL) -> Engine:
    path = database_file(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"database {path}: its folder cannot be created: {error.strerror}", answer=AWAY) from None
    files = DatabaseFiles(path)
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=8,
        max_overflow=_THREADS - 8,
        connect_args={"check_same_thread": False, "timeout": _PATIENCE, "uri": True, "factory": guarded_connection(files)},
        hide_parameters=True,  # user data must not appear in logs
    )
    engine.update_execution_options(database_files=files)
    measure(engine)
    event.listen(engine, "do_connect", lambda _dialect, _record, arguments, _options: _open(files, arguments))
    event.listen(engine, "connect", lambda connection, _record: _prepare(connection))
    event.listen(engine, "engine_disposed", lambda _engine: files.close())
    turns = WriteLock(engine, _PATIENCE)
    event.listen(engine, "begin", lambda connection: _begin(connection, turns, files))
    event.listen(engine, "handle_error", _explain)
    return engine


def database_file(url: URL) -> Path:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise Unsupported("an in-memory database is not supported, because each thread would see its own: use sqlite:///path/to/file.db")
    return Path(url.database)


def _open(files: DatabaseFiles, arguments: list[Any]) -> None:
    files.open(_prepare)
    files.check()
    arguments[0] = files.uri


def _prepare(connection: sqlite3.Connection) -> None:
    connection.isolation_level = None  # `_begin` begins transactions, not the driver
    for setting in (f"busy_timeout={int(_PATIENCE * 1000)}", "synchronous=NORMAL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}").close()
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Waits for other processes that open a new database at the same time: for this setting SQLite does not wait by itself."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _begin(connection: Connection, turns: WriteLock, files: DatabaseFiles) -> None:
    files.check()
    if connection.get_execution_options().get("read_only", False):
        connection.exec_driver_sql("BEGIN")
    else:
        turns.begin(connection)


def _explain(context: ExceptionContext) -> None:
    """Turns faults that an operator can fix into one-line errors; other exceptions pass unchanged."""
    error = context.original_exception
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or context.engine is None:
        return
    place, files = context.engine.url.database, files_of(context.engine)
    if files is not None and (code in _NO_ROOM or code & 0xFF == sqlite3.SQLITE_FULL):
        raise files.no_room(str(error)) from error
    if code & 0xFF in _PASSING:
        raise Unavailable(f"database {place}: {error}", answer=AWAY) from error
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        raise Unavailable(f"database {place} cannot be written: check the permissions of the file and its folder", answer=AWAY) from error
    if code & 0xFF == sqlite3.SQLITE_CORRUPT:
        raise Unavailable(f"database {place} is damaged: stop the platform and restore it from a backup", answer=AWAY) from error
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        raise Invalid(f"{place} is not a SQLite database: name another file") from error
