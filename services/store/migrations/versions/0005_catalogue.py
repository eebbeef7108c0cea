"""What is known of items, for the filters of answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "catalogue_items",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("item", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("available", sa.Boolean(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("catalogue_items_changed", "catalogue_items", ["recommender", "revision"])
    op.create_table(
        "catalogues",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("cleared", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")
