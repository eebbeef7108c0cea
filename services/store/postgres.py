"""PostgreSQL, and the guarantees that every SQL adapter relies on.

Writers run at READ COMMITTED: each statement sees the newest state. A decision that needs one state takes a lock
(`locks.take_turn`), locks its row, or is a compare-and-swap. A transaction with the execution option `read_only` sees one
state throughout (REPEATABLE READ, READ ONLY), waits for no writer and can't fail because of other writes.

A connection is tested before use, so a server that has recovered is used at once. Temporary faults raise Unavailable. If the
connection is lost during a commit, the commit may have happened or not: read before a retry.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import TimeoutError as PoolTimeout

from services.store.db_metrics import measure
from shared.domain.errors import EyasError, Invalid, Unavailable, Unsupported

_PATIENCE = 10.0
"""Seconds that a writer waits for earlier writers, and that a thread waits for a connection."""
_CONNECTIONS = 32
"""Maximum per process: a server allows 100 by default, for all replicas together."""
_CONNECT = {
    "connect_timeout": 5,
    "application_name": "eyas",
    "keepalives_idle": 10,  # detects a server whose machine is gone
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SETTINGS = {
    "statement_timeout": "60s",
    "lock_timeout": f"{_PATIENCE:g}s",
    "idle_in_transaction_session_timeout": "5min",  # an export writes a file during its transaction
}
_SET = "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())

# Messages for operators, by SQLSTATE or by a prefix of the SQLSTATE.
_FAULTS = {
    "08": "the connection was lost",
    "40001": "other writers changed the same rows",
    "40P01": "deadlock of two writers: one was cancelled",
    "42501": "this user lacks a privilege: grant it (the user must own the database, or may create tables in its schema)",
    "53": "the server is out of resources",
    "55P03": f"other writers took more than {_PATIENCE:g} s",
    "57014": f"the statement took more than {_SETTINGS['statement_timeout']}",
    "57P": "the server is shutting down or starting",
    "58": "the server cannot read or write its files",
    "25006": "the server is read-only: it is a standby, or set to read-only",
    "25P03": "a transaction was idle for too long",
}
# Messages for operators, by the text of connection errors, which have no SQLSTATE.
_REFUSALS = {
    "password authentication failed": "the password or the user is wrong: correct the database URL",
    "no password supplied": "the server requires a password: add it to the database URL",
    "does not exist": "create it, or correct the database URL",
    "no pg_hba.conf entry": "the server refuses this user from this host: see its pg_hba.conf",
    "starting up": "the server is starting",
    "shutting down": "the server is shutting down",
    "too many clients": "the server has no connection left: raise its max_connections",
    "remaining connection slots": "the server has no connection left: raise its max_connections",
    "resolve": "the host name is unknown: correct the database URL",
    "translate host name": "the host name is unknown: correct the database URL",
}


class _Pool(QueuePool):
    def connect(self) -> Any:
        try:
            return super().connect()
        except PoolTimeout:
            raise Unavailable(f"all {_CONNECTIONS} connections to the database are in use: try again") from None


def open_engine(url: URL) -> Engine:
    try:
        from psycopg import IsolationLevel
    except ImportError:
        raise Unsupported("PostgreSQL needs the driver psycopg: install it with pip install 'eyas[cluster]'") from None
    if not url.database:
        raise Invalid("the database URL has no database name: use postgresql://user:password@host:5432/database")
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        poolclass=_Pool,
        pool_size=8,
        max_overflow=_CONNECTIONS - 8,
        pool_timeout=_PATIENCE,
        pool_pre_ping=True,
        connect_args=_CONNECT,
        hide_parameters=True,  # user data must not appear in logs
    )

    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        reads = bool(connection.get_execution_options().get("read_only", False))
        driver.read_only = reads  # sent with the BEGIN of the first statement
        driver.isolation_level = IsolationLevel.REPEATABLE_READ if reads else IsolationLevel.READ_COMMITTED

    measure(engine)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", begin)
    event.listen(engine, "handle_error", _explain)
    return engine


def _prepare(connection: Any, _record: Any) -> None:
    connection.autocommit = True
    connection.execute(_SET).close()
    connection.autocommit = False


def _place(url: URL) -> str:
    host = url.host or url.query.get("host") or "the local socket"
    named = host if isinstance(host, str) else ", ".join(host)
    return f"database '{url.database}' on {named}" + (f":{url.port}" if url.port else "")


def _explain(context: ExceptionContext) -> None:
    """Turns faults that an operator can fix into one-line errors; other exceptions pass unchanged."""
    import psycopg

    error = context.original_exception
    if context.engine is None or context.is_pre_ping or not isinstance(error, psycopg.Error):
        return
    explanation = _explanation(error, psycopg, connected=context.connection is not None, lost=context.is_disconnect)
    if explanation is None:
        return
    kind, reason = explanation
    message = " ".join(str(error).split())
    raise kind(f"{_place(context.engine.url)}: {reason} ({message[:300]})", answer="the database doesn't answer") from error


def _explanation(error: Any, psycopg: Any, *, connected: bool, lost: bool) -> tuple[type[EyasError], str] | None:
    state = error.sqlstate or ""
    for code in (state, state[:3], state[:2]):
        if code in _FAULTS:
            return Unavailable, _FAULTS[code]
    if lost:
        return Unavailable, "the connection was lost"
    if not connected and isinstance(error, psycopg.OperationalError):
        message = str(error)
        hints = [hint for words, hint in _REFUSALS.items() if words in message]
        return Unavailable, hints[0] if hints else "no connection: check that the server runs and the address is correct"
    if not connected and isinstance(error, psycopg.ProgrammingError):
        return Invalid, "the database URL has a parameter unknown to PostgreSQL"
    if isinstance(error, psycopg.DataError):
        return Invalid, "a value cannot be stored"
    return None
