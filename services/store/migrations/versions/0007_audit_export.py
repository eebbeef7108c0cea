"""Which entries of the audit log are exported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "audit_export"
down_revision = "sessions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("exported", sa.Integer, nullable=False, server_default="0"))
    unexported = sa.text("exported < 2")
    op.create_index("audit_to_export", "audit", ["seq"], sqlite_where=unexported, postgresql_where=unexported)


def readable_by(connection: sa.Connection) -> str:
    return "text_ids"


def losses(connection: sa.Connection) -> str:
    """After the next upgrade, entries are exported again, which loses nothing."""
    return ""


def downgrade() -> None:
    op.drop_index("audit_to_export", "audit")
    op.execute("ALTER TABLE audit DROP COLUMN exported")
