"""Migrates a database to this code's tables, or raises the reason why that is not possible.

All steps run in one transaction, so a database is never between two revisions. A second, concurrent migration waits and
then finds nothing to do.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, column, func, select, table

from services.store.locks import take_turn
from shared.domain.errors import Unsupported

_MIGRATIONS = Path(__file__).parent / "migrations"
_PATIENCE = "10min"
_ENCODING = (
    select(column("encoding")).select_from(table("pg_database")).where(column("datname") == func.current_database()).scalar_subquery()
)
_one_at_a_time = threading.Lock()  # Alembic keeps its context in a global variable


def upgrade(engine: Engine) -> None:
    """Migrates the database; idempotent. Refuses a database that newer code has migrated, without changes."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with _one_at_a_time, engine.begin() as connection:
        _wait_for_others(connection)
        _refuse_newer(connection, ScriptDirectory.from_config(config))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _wait_for_others(connection: Connection) -> None:
    """Waits for other migrations on PostgreSQL, with long timeouts: a step over many rows may take long. Checks the encoding."""
    if connection.dialect.name == "postgresql":
        for setting, value in (("statement_timeout", "0"), ("lock_timeout", _PATIENCE)):
            connection.execute(select(func.set_config(setting, value, True)))
        take_turn(connection, "migration")
        encoding = connection.execute(select(func.pg_encoding_to_char(_ENCODING))).scalar()
        if encoding != "UTF8":
            raise Unsupported(f"the database {connection.engine.url.database} is encoded in {encoding}: make one with ENCODING 'UTF8'")


def _refuse_newer(connection: Connection, script: ScriptDirectory) -> None:
    revisions = {step.revision for step in script.walk_revisions()}
    unknown = sorted(set(MigrationContext.configure(connection).get_current_heads()) - revisions)
    if unknown:
        raise Unsupported(
            f"the database {connection.engine.url.database} is at revision {', '.join(unknown)}, which this Eyas doesn't know:"
            " a newer one has migrated it. Start that one, or restore a backup"
        )
