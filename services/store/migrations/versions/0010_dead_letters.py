"""Runs that gave up are found by an index: a list of them looked at every run that had failed."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_resources = sa.table(
    "resources",
    *(sa.column(name, sa.Text()) for name in ("kind", "id", "state", "status")),
    sa.column("dead_letter", sa.Boolean()),
)


def upgrade() -> None:
    op.add_column("resources", sa.Column("dead_letter", sa.Boolean(), nullable=False, server_default=sa.false()))
    connection = op.get_bind()
    conditions = (_resources.c.kind == "run", _resources.c.state == "failed")
    rows = connection.execute(
        sa.select(_resources.c.id, _resources.c.status).where(*conditions, _resources.c.status.contains("dead_letter"))
    )
    gave_up = [row.id for row in rows if _dead(row.status)]
    for first in range(0, len(gave_up), 500):
        some = gave_up[first : first + 500]
        connection.execute(sa.update(_resources).where(_resources.c.kind == "run", _resources.c.id.in_(some)).values(dead_letter=sa.true()))
    for name, columns in (("dead", ["kind", "created_at", "id"]), ("dead_of", ["kind", "recommender", "created_at", "id"])):
        op.create_index(
            f"resources_{name}", "resources", columns, sqlite_where=sa.text("dead_letter = 1"), postgresql_where=sa.text("dead_letter")
        )


def _dead(status: str) -> bool:
    try:
        return bool(json.loads(status).get("dead_letter"))
    except (ValueError, AttributeError):  # a row that nobody can read
        return False


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")
