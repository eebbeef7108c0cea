"""What a candidate is judged by beside its hits: latencies and scores of answers, and what a shadow showed.

Answers from before have neither latency nor score: they count as answers without them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_JSON = sa.Text()


def upgrade() -> None:
    _answers()
    _shadow()


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")


def _answers() -> None:
    op.add_column("impressions", sa.Column("bucket", sa.Integer()))
    op.add_column("impressions", sa.Column("score", sa.Float()))
    op.drop_index("impressions_by_route", "impressions")
    route = ["recommender", "generation", "variant"]
    op.create_index("impressions_by_route", "impressions", [*route, "user", "fallback", "at", "hit_at"])
    op.create_index("impressions_by_latency", "impressions", [*route, "fallback", "bucket", "score", "at"])


def _shadow() -> None:
    for table in ("routes", "route_history"):
        op.add_column(table, sa.Column("shadow", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "mirrors",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("gateway", sa.Text(), primary_key=True),
        sa.Column("compared", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("stable", _JSON, nullable=False),
        sa.Column("candidate", _JSON, nullable=False),
        sa.Column("overlap", sa.Float(), nullable=False),
        sa.Column("dropped", sa.Integer(), nullable=False),
    )
