"""Sessions of the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "sessions"
down_revision = "forgotten_users"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("renewed_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("token_id", sa.Text),
        sa.Column("token_digest", sa.Text),
        sa.Column("identity", sa.Text),
        sa.Column("previous_digest", sa.Text),
        sa.Column("previous_until", sa.BigInteger),
    )
    op.create_index("sessions_by_expiry", "sessions", ["expires_at"])


def readable_by(connection: sa.Connection) -> str:
    return "text_ids"


def losses(connection: sa.Connection) -> str:
    """Everybody signs in again, which loses nothing."""
    return ""


def downgrade() -> None:
    op.drop_table("sessions")
