"""The one migration of a newer release in tests: it adds a column, so older code can use the tables."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Connection

revision = "notes"
down_revision = "item_creation"
branch_labels = None
depends_on = None


def readable_by(connection: Connection) -> str:
    return "text_ids"


def losses(connection: Connection) -> str:
    return ""


def upgrade() -> None:
    op.execute("ALTER TABLE recommenders ADD COLUMN note TEXT")


def downgrade() -> None:
    op.execute("ALTER TABLE recommenders DROP COLUMN note")
