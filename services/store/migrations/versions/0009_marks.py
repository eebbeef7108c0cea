"""A mark that rises with every change of a route or of a recommender, so that who has read all of them needn't read them again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    made = op.create_table("marks", sa.Column("name", sa.Text(), primary_key=True), sa.Column("value", sa.BigInteger(), nullable=False))
    op.bulk_insert(made, [{"name": "state", "value": 0}])


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")
