"""Dump and load of a database, by the tools of its kind: SQLite's online backup; pg_dump and pg_restore. Each dump is one snapshot.

The tools of PostgreSQL get the password by their environment: other users can see command lines.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import URL, Engine, Select, column, inspect, make_url, select, table

from services.store import sqlite
from services.store.engine import missing_file, open_engine
from services.store.tables import recommenders, tokens
from shared.contracts.backup import DatabaseKind
from shared.domain.errors import Conflict, Invalid, Unavailable, Unsupported

_REVISION: Select[tuple[str]] = select(column("version_num")).select_from(table("alembic_version"))


def dump(url: str, password: str | None, to: Path) -> tuple[DatabaseKind, str]:
    """Writes a dump; returns the database's kind and the revision of its tables. Writers continue meanwhile."""
    parsed = _parsed(url, password)
    if _is_sqlite(parsed):
        return "sqlite", _copy(sqlite.database_file(parsed), to)
    before = _revision(url, password)
    _run(parsed, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={to}")
    if _revision(url, password) != before:
        raise Unavailable("the database was migrated during the dump; make the backup again")
    return "postgresql", before


def load(url: str, password: str | None, path: Path) -> None:
    """Loads a dump into an unused database, completely or not at all."""
    parsed = _parsed(url, password)
    if not _is_sqlite(parsed):
        _run(
            *(parsed, "pg_restore", "--single-transaction", "--exit-on-error", "--clean", "--if-exists"),
            *("--no-owner", "--no-privileges", str(path)),
        )
        return
    target = sqlite.database_file(parsed).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        _copy(path, part)
        for suffix in ("-wal", "-shm"):  # of a lost database; SQLite would apply them to the new one
            target.with_name(f"{target.name}{suffix}").unlink(missing_ok=True)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def check_loadable(url: str, password: str | None, kind: DatabaseKind) -> None:
    """Raises if the database is of another kind than the dump, or has data."""
    parsed = _parsed(url, password)
    own: DatabaseKind = "sqlite" if _is_sqlite(parsed) else "postgresql"
    if own != kind:
        raise Invalid(f"the backup is of a {kind} database, EYAS_DATABASE_URL names a {own} one; name an empty {kind} database")
    if own == "sqlite":
        if missing_file(url) is None:
            raise Conflict(f"database {sqlite.database_file(parsed)} exists; move it away first, or restore into another --home")
        return
    engine = open_engine(url, password)
    try:
        if _has_data(engine):
            raise Conflict(f"database '{parsed.database}' has data; restore into an empty database")
    finally:
        engine.dispose()


def _has_data(engine: Engine) -> bool:
    there = inspect(engine).get_table_names()
    with engine.connect() as connection:
        return any(name.name in there and connection.execute(select(name).limit(1)).first() for name in (recommenders, tokens))


def _copy(source: Path, to: Path) -> str:
    """Copies a database in one read transaction, checks the copy, and returns its revision."""
    to.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as original, closing(sqlite3.connect(to)) as copy:
            to.chmod(0o600)
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, which needs no -wal beside it
            fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
            if fault != "ok":
                raise Unavailable(f"database {source} is damaged: {fault}; restore it from a backup")
            return str(copy.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    except sqlite3.Error as error:
        raise Unavailable(f"database {source} cannot be copied: {error}") from None


def _revision(url: str, password: str | None) -> str:
    engine = open_engine(url, password)
    try:
        with engine.connect() as connection:
            return str(connection.execute(_REVISION).scalar_one())
    finally:
        engine.dispose()


def _parsed(url: str, password: str | None) -> URL:
    parsed = make_url(url)
    return parsed if password is None else parsed.set(password=password)


def _is_sqlite(url: URL) -> bool:
    return url.drivername.startswith("sqlite")


def _run(url: URL, program: str, *arguments: str) -> None:
    place = shutil.which(program)
    if place is None:
        raise Unsupported(f"{program} is not installed: install the PostgreSQL client, at least of the server's version")
    target = url.set(drivername="postgresql", password=None).render_as_string()
    environment = {**os.environ, "PGCONNECT_TIMEOUT": "10"} | ({} if url.password is None else {"PGPASSWORD": str(url.password)})
    command: Sequence[str] = (place, "--no-password", f"--dbname={target}", *arguments)
    done = subprocess.run(  # noqa: S603  without a shell
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line.removeprefix(f"{program}: ").removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
        detail = next((line for line in lines if line.startswith("detail: ")), "")
        raise Unavailable(f"{program} fails: {lines[0] if lines else f'exit code {done.returncode}'}{'; ' + detail if detail else ''}")
