"""Marks of days of events that are deleted from the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "event_deletions"
down_revision = "text_ids"
branch_labels = None
depends_on = None

_DELETED = sa.text("SELECT count(*) FROM event_deletions WHERE deleted_before IS NOT NULL")
_REFUSED = sa.text("SELECT count(*) FROM event_deletions WHERE refused_before > 0")


def upgrade() -> None:
    op.create_table(
        "event_deletions",
        sa.Column("recommender", sa.Text, primary_key=True),
        sa.Column("events", sa.Text, primary_key=True),
        sa.Column("refused_before", sa.BigInteger, nullable=False),
        sa.Column("refused_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_before", sa.BigInteger),
        sa.Column("compactions", sa.Integer),
    )


def readable_by(connection: sa.Connection) -> str:
    """Older code reads events from the database only, so it may run until days are refused, which their deletion follows."""
    return "event_deletions" if connection.execute(_REFUSED).scalar_one() else "text_ids"


def losses(connection: sa.Connection) -> str:
    deleted = connection.execute(_DELETED).scalar_one()
    return "the marks of deleted days, without which training lacks these days" if deleted else ""


def downgrade() -> None:
    op.drop_table("event_deletions")
