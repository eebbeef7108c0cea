"""Which slices an answer belongs to; counts by variant and slice come out of the index that counts by version come out of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("impressions", sa.Column("slices", sa.Text()))
    op.drop_index("impressions_by_version", "impressions")
    columns = ["recommender", "version", "at", "hit_at", "size", "request_id", "variant", "fallback", "slices"]
    op.create_index("impressions_by_version", "impressions", columns)


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")
