"""The one place that opens a database: which one, the URL says. What each promises is said beside it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError

from services.store import postgres, sqlite
from shared.domain.errors import Invalid, Unsupported

_EXPECTED = "use sqlite:///path/to/file.db or postgresql://user:password@host:5432/database"


def sqlite_url(path: Path) -> str:
    """The URL of a database file, whatever characters its path has."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def missing_file(url: str) -> Path | None:
    """The file of a SQLite database that isn't there or holds nothing; None for any other database."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None  # `open_engine` says what is wrong with it
    if not parsed.drivername.startswith("sqlite"):
        return None
    path = sqlite.database_file(parsed).absolute()
    return None if path.is_file() and path.stat().st_size else path


def open_engine(url: str, password: str | None = None) -> Engine:
    """An engine to be shared by any number of threads; `dispose()` closes its connections.

    A transaction that only reads says so with the execution option `read_only`: it sees one state of the database and
    waits for nobody. No message repeats the URL, for it may hold a password; one that is given apart goes into it here.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise Invalid(f"the database URL can't be read: {_EXPECTED}") from None
    if password is not None:
        parsed = parsed.set(password=password)
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return sqlite.open_engine(parsed)
    if parsed.drivername in ("postgresql", "postgresql+psycopg", "postgres"):
        return postgres.open_engine(parsed)
    raise Unsupported(f"database '{parsed.drivername}' is not supported: {_EXPECTED}")
