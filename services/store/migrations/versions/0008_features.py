"""Values by key for those who answer, and their history for those who train."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def _rows() -> list[sa.Column[int] | sa.Column[str]]:
    return [
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("view", sa.Text(), primary_key=True),
        sa.Column("entity", sa.BigInteger(), primary_key=True, autoincrement=False),
    ]


def upgrade() -> None:
    op.create_table(
        "feature_values",
        *_rows(),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "feature_views",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("view", sa.Text(), primary_key=True),
        sa.Column("count", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "feature_history",
        *_rows(),
        sa.Column("at", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_index("feature_history_by_time", "feature_history", ["recommender", "at"])


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")
