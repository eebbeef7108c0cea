"""When each item of a catalogue was created."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "item_creation"
down_revision = "audit_export"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("catalogue_items", sa.Column("created_at", sa.BigInteger))


def readable_by(connection: sa.Connection) -> str:
    return "text_ids"


def losses(connection: sa.Connection) -> str:
    """Items then count as created at their newest write, which loses nothing that was asked for."""
    return ""


def downgrade() -> None:
    op.execute("ALTER TABLE catalogue_items DROP COLUMN created_at")
