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
_BEFORE_RELEASE = frozenset(f"{number:04}" for number in range(1, 11))
"""Revisions of the development before the first release."""
_one_at_a_time = threading.Lock()  # Alembic keeps its context in a global variable


def upgrade(engine: Engine) -> None:
    """Migrates the database; idempotent. Refuses a database of an unknown revision, without changes."""
    config = _config()
    with _one_at_a_time, engine.begin() as connection:
        _wait_for_others(connection)
        _refuse_unknown(connection, ScriptDirectory.from_config(config))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check_known(revision: str) -> None:
    """Raises Unsupported for the revision of a newer release."""
    if revision not in {step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions()}:
        raise Unsupported(f"this release does not know the database revision '{revision}': use the release that made it, or a newer one")


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


def _refuse_unknown(connection: Connection, script: ScriptDirectory) -> None:
    revisions = {step.revision for step in script.walk_revisions()}
    unknown = sorted(set(MigrationContext.configure(connection).get_current_heads()) - revisions)
    if not unknown:
        return
    database = connection.engine.url.database
    if unknown[0] in _BEFORE_RELEASE:
        raise Unsupported(f"the database {database} is older than the first release: start with an empty database and another home")
    raise Unsupported(
        f"the database {database} is at revision {', '.join(unknown)}, which this release does not know: a newer release has migrated it; "
        "start that release, or restore a backup"
    )
