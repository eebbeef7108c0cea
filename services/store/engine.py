"""Opens the database of a URL. `sqlite` and `postgres` document the guarantees of each database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError

from services.store import postgres, sqlite
from shared.domain.errors import Invalid, Unsupported

_EXPECTED = "use sqlite:///path/to/file.db or postgresql://user:password@host:5432/database"


def sqlite_url(path: Path) -> str:
    """Returns the URL of a database file; the path may have any characters."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def missing_file(url: str) -> Path | None:
    """Returns the path of a SQLite database that is missing or empty; None for any other database."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None  # `open_engine` reports the fault
    if not parsed.drivername.startswith("sqlite"):
        return None
    path = sqlite.database_file(parsed).absolute()
    return None if path.is_file() and path.stat().st_size else path


def open_engine(url: str, password: str | None = None) -> Engine:
    """Opens an engine that threads can share; `dispose()` closes its connections.

    A transaction with the execution option `read_only` sees one state of the database and waits for no other transaction.
    No message repeats the URL, which may hold a password; `password` replaces the password of the URL.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise Invalid(f"the database URL cannot be read: {_EXPECTED}") from None
    if password is not None:
        parsed = parsed.set(password=password)
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return sqlite.open_engine(parsed)
    if parsed.drivername in ("postgresql", "postgresql+psycopg", "postgres"):
        return postgres.open_engine(parsed)
    raise Unsupported(f"database '{parsed.drivername}' is not supported: {_EXPECTED}")
