"""Events with ids, kinds and revenue, and which answer each of them reacts to, so that their order doesn't matter.

Interactions from before belong to no answer by name; the hits that they made stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("impressions", sa.Column("size", sa.Integer()))
    op.drop_index("impressions_by_version", "impressions")
    op.create_index("impressions_by_version", "impressions", ["recommender", "version", "at", "hit_at", "size", "request_id"])
    _interactions()


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")


def _interactions() -> None:
    for name in ("event", "kind", "answer"):
        op.add_column("interactions", sa.Column(name, sa.Text()))
    for name in ("revenue", "within"):
        op.add_column("interactions", sa.Column(name, sa.BigInteger()))
    op.add_column("interactions", sa.Column("position", sa.Integer()))
    op.drop_index("interactions_by_user", "interactions")
    op.create_index("interactions_by_user", "interactions", ["recommender", "user", "positive", "at", "item"])
    _some("event", ["recommender", "event"], "event", unique=True)
    _some("name", ["request_id"], "request_id")
    _some("answer", ["answer", "kind", "position", "at", "revenue"], "answer")


def _some(name: str, columns: list[str], present: str, unique: bool = False) -> None:
    """An index of the rows that have that column."""
    where = sa.text(f"{present} IS NOT NULL")
    op.create_index(f"interactions_by_{name}", "interactions", columns, unique=unique, sqlite_where=where, postgresql_where=where)
