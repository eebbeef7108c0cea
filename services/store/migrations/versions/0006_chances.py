"""With what chance each item of an answer was shown in its place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("impressions", sa.Column("chances", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")
