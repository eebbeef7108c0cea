"""Dumps a database to a file, and loads it again: with SQLite's online backup, or with pg_dump and pg_restore. A dump is one snapshot.

Of a PostgreSQL database only the platform's own tables are dumped and loaded. Its tools get the connection by a file that only the owner
can read: other users can see command lines.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, column, inspect, make_url, select, table, text

from services.store import sqlite
from services.store.engine import missing_file, open_engine
from services.store.migrate import readable_by
from services.store.tables import change_counters, gateways, installation, leases
from shared.contracts.backup import DatabaseKind, Tables
from shared.domain.errors import Conflict, Invalid, Unavailable, Unsupported

VERSIONS = "alembic_version"
_OF_PROCESSES = frozenset({installation.name, leases.name, gateways.name, change_counters.name, VERSIONS})
"""Tables that a platform without any data writes to."""
_LOCK_WAIT = "60s"


def dump(url: str, password: str | None, names: Sequence[str], to: Path) -> tuple[DatabaseKind, Tables]:
    """Writes a dump of the platform's tables, whose names are `names`, while writers continue. Returns the database's kind and the revision
    of its tables."""
    parsed, before = _parsed(url, password), _tables(url, password)
    if _is_sqlite(parsed):
        _copy(sqlite.database_file(parsed), to)
    else:
        chosen = [f"--lock-wait-timeout={_LOCK_WAIT}", f"--file={to}", *(f"--table={name}" for name in (*names, VERSIONS))]
        _run(parsed, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", *chosen)
    if _tables(url, password) != before:
        raise Unavailable("the database was migrated during the dump; make the backup again")
    return "sqlite" if _is_sqlite(parsed) else "postgresql", before


def load(url: str, password: str | None, names: Sequence[str], path: Path) -> None:
    """Loads a dump into an unused database, completely or not at all. Drops the empty tables first: an older dump lacks new ones."""
    parsed = _parsed(url, password)
    if not _is_sqlite(parsed):
        engine = open_engine(url, password)
        try:
            with engine.begin() as connection:
                connection.execute(text(f"DROP TABLE IF EXISTS {', '.join((*names, VERSIONS))}"))
        finally:
            engine.dispose()
        _run(parsed, "pg_restore", "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", str(path))
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


def check_loadable(url: str, password: str | None, names: Sequence[str], kind: DatabaseKind) -> None:
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
        filled = _filled(engine, names)
        if filled:
            raise Conflict(f"database '{parsed.database}' has data in {', '.join(filled)}; restore into an empty database")
    finally:
        engine.dispose()


def _filled(engine: Engine, names: Sequence[str]) -> list[str]:
    present = set(inspect(engine).get_table_names())
    with engine.connect() as connection:
        return [
            name
            for name in names
            if name in present - _OF_PROCESSES and connection.execute(select(text("1")).select_from(table(name)).limit(1)).first()
        ]


def _copy(source: Path, to: Path) -> None:
    """Copies a database in one read transaction, and checks the copy."""
    to.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as original, closing(sqlite3.connect(to)) as copy:
            to.chmod(0o600)
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, which needs no -wal beside it
            fault = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
            if fault != "ok":
                raise Unavailable(f"database {source} is damaged: {fault}; restore it from a backup")
    except sqlite3.Error as error:
        raise Unavailable(f"database {source} cannot be copied: {error}") from None


def _tables(url: str, password: str | None) -> Tables:
    """Returns the revision of the tables, and the oldest revision whose code can use them."""
    engine = open_engine(url, password)
    try:
        with engine.connect() as connection:
            return Tables(revision=_revision(connection), readable_by=readable_by(connection) or _revision(connection))
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str:
    if not inspect(connection).has_table(VERSIONS):
        raise Invalid("the database has no tables of a platform: run `eyas migrate` first")
    return str(connection.execute(select(column("version_num")).select_from(table(VERSIONS))).scalar_one())


def _parsed(url: str, password: str | None) -> URL:
    parsed = make_url(url)
    return parsed if password is None else parsed.set(password=password)


def _is_sqlite(url: URL) -> bool:
    return url.drivername.startswith("sqlite")


def _run(url: URL, program: str, *arguments: str) -> None:
    place = shutil.which(program)
    if place is None:
        raise Unsupported(f"{program} is not installed: install the PostgreSQL client, at least of the server's version")
    settings = {"host": url.host, "port": url.port, "user": url.username, "password": url.password, "dbname": url.database}
    settings |= {name: ",".join(value) if isinstance(value, tuple) else value for name, value in url.query.items()}
    with tempfile.NamedTemporaryFile("w", prefix="eyas-connection-", suffix=".conf") as service:
        service.write("[eyas]\nconnect_timeout=10\n")
        service.writelines(f"{name}={value}\n" for name, value in settings.items() if value is not None)
        service.flush()
        command: Sequence[str] = (place, "--no-password", "--dbname=service=eyas", *arguments)
        done = subprocess.run(  # noqa: S603  without a shell
            command,
            env={**os.environ, "PGSERVICEFILE": service.name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        lines = [line.removeprefix(f"{program}: ").removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
        detail = next((line for line in lines if line.startswith("detail: ")), "")
        raise Unavailable(f"{program} fails: {lines[0] if lines else f'exit code {done.returncode}'}{'; ' + detail if detail else ''}")
