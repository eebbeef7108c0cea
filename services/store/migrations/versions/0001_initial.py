"""First migration: creates all tables with the SQL of 0001_initial.sql."""

from __future__ import annotations

from pathlib import Path

from alembic import op
from sqlalchemy import Connection

revision = "initial"
down_revision = None
branch_labels = None
depends_on = None

_DIALECTS = {
    "sqlite": {"sequence": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "false": "0", "dead_letter": "dead_letter = 1"},
    "postgresql": {"sequence": "BIGSERIAL NOT NULL PRIMARY KEY", "false": "false", "dead_letter": "dead_letter"},
}


def upgrade() -> None:
    statements = Path(__file__).with_suffix(".sql").read_text().format_map(_DIALECTS[op.get_context().dialect.name])
    for statement in statements.split(";\n"):
        if statement.strip():
            op.execute(statement)


def losses(connection: Connection) -> str:
    return "the whole database"


def downgrade() -> None:
    """Not reached: `losses` refuses."""
