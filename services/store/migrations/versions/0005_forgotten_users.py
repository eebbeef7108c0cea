"""Digests of forgotten users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "forgotten_users"
down_revision = "event_deletions"
branch_labels = None
depends_on = None

_COUNT = sa.text("SELECT count(DISTINCT digest) FROM forgotten_users")


def upgrade() -> None:
    op.create_table(
        "forgotten_users",
        sa.Column("recommender", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("archived", sa.Boolean, nullable=False),
    )
    op.create_index("forgotten_users_by_time", "forgotten_users", ["recommender", "at"])


def readable_by(connection: sa.Connection) -> str:
    """Older code would train on what files still have of forgotten users, so it may run until a user is forgotten."""
    return "forgotten_users" if connection.execute(_COUNT).scalar_one() else "text_ids"


def losses(connection: sa.Connection) -> str:
    forgotten = connection.execute(_COUNT).scalar_one()
    return f"the memory of {forgotten} forgotten users, whose rows in files would be learned again" if forgotten else ""


def downgrade() -> None:
    op.drop_table("forgotten_users")
