"""Migrates a database to this code's tables, or raises the reason why that is not possible.

All steps run in one transaction, so a database is never between two revisions. A second, concurrent migration waits and
then finds nothing to do.

A migration's module has `losses(connection)`: what a downgrade would lose; empty if nothing. A downgrade that loses something is refused
before it begins. The module may have `readable_by(connection)`: the oldest revision whose code can use the tables after this migration,
beside a newer release or after its rollback. Without it, only code that knows the migration can.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, column, delete, func, insert, inspect, select, table

from services.store.locks import take_turn
from services.store.tables import installation
from shared.contracts.backup import Tables
from shared.domain.errors import Invalid, Unsupported

log = logging.getLogger(__name__)

_MIGRATIONS = Path(__file__).parent / "migrations"
_PATIENCE = "10min"
_ENCODING = (
    select(column("encoding")).select_from(table("pg_database")).where(column("datname") == func.current_database()).scalar_subquery()
)
_BEFORE_RELEASE = frozenset(f"{number:04}" for number in range(1, 11))
"""Revisions of the development before the first release."""
_READABLE_BY = "readable_by"
"""Row of `installation`: the oldest revision whose code can use the tables."""
_one_at_a_time = threading.Lock()  # Alembic keeps its context in a global variable


def upgrade(engine: Engine) -> str:
    """Migrates the database, and returns its revision; idempotent. Leaves a database alone that a newer release has migrated, if this code
    can use its tables, and refuses it otherwise."""
    config = _config()
    script = ScriptDirectory.from_config(config)
    with _one_at_a_time, engine.begin() as connection:
        _wait_for_others(connection)
        if not _is_newer(connection, script):
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            _write_readable_by(connection, script, "heads")
        return MigrationContext.configure(connection).get_current_heads()[0]


def downgrade(engine: Engine, revision: str) -> None:
    """Migrates back to the tables of an older revision. Refuses, before any change, if rows would be lost."""
    config = _config()
    script = ScriptDirectory.from_config(config)
    revisions = [step.revision for step in script.walk_revisions()]
    if revision not in revisions:
        raise Invalid(f"unknown revision '{revision}'; known: {', '.join(revisions)}")
    with _one_at_a_time, engine.begin() as connection:
        _wait_for_others(connection)
        if _is_newer(connection, script):
            raise Unsupported("a newer release has migrated the database: use the `eyas migrate --to` of that release")
        current = MigrationContext.configure(connection).get_current_heads()
        if not current or revisions.index(revision) < revisions.index(current[0]):
            raise Invalid(f"the database is at revision {', '.join(current) or 'none'}, which is older: use `eyas migrate` without --to")
        for step in script.iterate_revisions(current, revision):
            lost = step.module.losses(connection)
            if lost:
                raise Unsupported(
                    f"revision '{step.revision}' cannot go back: {lost} would be lost; restore a backup of before the upgrade"
                )
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        _write_readable_by(connection, script, revision)


def renew_readable_by(engine: Engine) -> None:
    """Writes again which code can use the tables, after rows have changed on which a migration's `readable_by` depends."""
    script = ScriptDirectory.from_config(_config())
    with _one_at_a_time, engine.begin() as connection:
        if not _is_newer(connection, script):
            _write_readable_by(connection, script, "heads")


def check_usable(tables: Tables) -> None:
    """Raises Unsupported for tables of a newer release that this code cannot use."""
    known_revisions = {step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions()}
    if not known_revisions & {tables.revision, tables.readable_by}:
        raise Unsupported(
            f"this release cannot use tables of revision '{tables.revision}': use the release that migrated them, or a newer one"
        )


def readable_by(connection: Connection) -> str | None:
    """Returns the oldest revision whose code can use the tables; None if no migration has declared one."""
    if not inspect(connection).has_table(installation.name):
        return None
    return connection.execute(select(installation.c.value).where(installation.c.name == _READABLE_BY)).scalar()


def is_current(connection: Connection) -> bool:
    """Returns whether the database has the tables of this code, or newer ones that this code can use."""
    script = ScriptDirectory.from_config(_config())
    return _is_newer(connection, script) or MigrationContext.configure(connection).get_current_heads() == tuple(script.get_heads())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _wait_for_others(connection: Connection) -> None:
    """Waits for other migrations on PostgreSQL, with long timeouts: a step over many rows may take long. Checks the encoding."""
    if connection.dialect.name == "postgresql":
        for setting, value in (("statement_timeout", "0"), ("lock_timeout", _PATIENCE)):
            connection.execute(select(func.set_config(setting, value, True)))
        take_turn(connection, "migration")
        encoding = connection.execute(select(func.pg_encoding_to_char(_ENCODING))).scalar()
        if encoding != "UTF8":
            raise Unsupported(f"the database {connection.engine.url.database} is encoded in {encoding}: create one with ENCODING 'UTF8'")


def _is_newer(connection: Connection, script: ScriptDirectory) -> bool:
    """Returns whether a newer release has migrated the database and this code can use its tables. Raises Unsupported if it cannot."""
    revisions = {step.revision for step in script.walk_revisions()}
    unknown = sorted(set(MigrationContext.configure(connection).get_current_heads()) - revisions)
    if not unknown:
        return False
    database = connection.engine.url.database
    if unknown[0] in _BEFORE_RELEASE:
        raise Unsupported(f"the database {database} is older than the first release: start with an empty database and another home")
    oldest = readable_by(connection)
    if oldest in revisions:
        log.warning("database: migrated by a newer release, used unchanged revision=%s readable_by=%s", unknown[0], oldest)
        return True
    raise Unsupported(
        f"the database {database} is at revision {', '.join(unknown)}, which this release does not know: a newer release has migrated it; "
        "start that release, or restore a backup"
    )


def _write_readable_by(connection: Connection, script: ScriptDirectory, revision: str) -> None:
    """Writes the newest of the revisions that the migrations up to `revision` declare."""
    if not inspect(connection).has_table(installation.name):
        return
    steps = list(script.iterate_revisions(revision, "base"))
    order = [step.revision for step in steps]
    declared = (step.module.readable_by(connection) if hasattr(step.module, "readable_by") else step.revision for step in steps)
    oldest = min(declared, key=order.index)
    if readable_by(connection) != oldest:
        connection.execute(delete(installation).where(installation.c.name == _READABLE_BY))
        connection.execute(insert(installation).values(name=_READABLE_BY, value=oldest))
