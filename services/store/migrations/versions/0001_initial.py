"""The first tables: state (services/store) and events (services/eventlog).

Said here once more and not imported: a step must do the same for ever, whatever becomes of the code's tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_INSTANT = sa.BigInteger()  # microseconds since 1970
_JSON = sa.Text()
_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _recommenders()
    _resources()
    _versions()
    _routes()
    _impressions()
    _interactions()


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")


def _recommenders() -> None:
    op.create_table(
        "recommenders",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("updated_at", _INSTANT, nullable=False),
    )
    op.create_table(
        "recommender_history",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
    )


def _resources() -> None:
    op.create_table(
        "resources",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("recommender", sa.Text(), nullable=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("status", _JSON, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("intent", _JSON),
        sa.Column("asked", _JSON),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("due_at", _INSTANT, nullable=False),
    )
    op.create_index("resources_due", "resources", ["kind", "finished", "due_at", "id"])
    op.create_index("resources_newest", "resources", ["kind", "created_at", "id"])
    op.create_index("resources_newest_of", "resources", ["kind", "recommender", "created_at", "id"])
    op.create_table(
        "history",
        sa.Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("history_of", "history", ["kind", "id", "seq"])


def _versions() -> None:
    op.create_table(
        "versions",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("files", _JSON, nullable=False),
        sa.Column("metrics", _JSON, nullable=False),
        sa.Column("lineage", _JSON, nullable=False),
        sa.Column("parent", sa.Integer()),
        sa.Column("created_at", _INSTANT, nullable=False),
    )
    op.create_index("versions_run", "versions", ["run"], unique=True)


def _route() -> list[sa.Column[object]]:
    return [
        sa.Column("stable", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.Integer()),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("since", _INSTANT, nullable=False),
    ]


def _routes() -> None:
    op.create_table(
        "routes",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        *_route(),
    )
    op.create_table(
        "route_history",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("generation", sa.Integer(), primary_key=True, autoincrement=False),
        *_route(),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
    )
    op.create_table(
        "gateways",
        sa.Column("gateway", sa.Text(), primary_key=True),
        sa.Column("served", _JSON, nullable=False),
        sa.Column("heard_at", _INSTANT, nullable=False),
    )


def _impressions() -> None:
    op.create_table(
        "impressions",
        sa.Column("request_id", sa.Text(), primary_key=True),
        sa.Column("recommender", sa.Text(), nullable=False),
        sa.Column("user", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("items", _JSON, nullable=False),
        sa.Column("fallback", sa.Text()),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("hit_at", _INSTANT),
    )
    op.create_index("impressions_by_user", "impressions", ["recommender", "user", "at"])
    op.create_index("impressions_by_version", "impressions", ["recommender", "version", "at", "hit_at"])
    route = ["recommender", "generation", "fallback", "variant", "user", "at", "hit_at"]
    op.create_index("impressions_by_route", "impressions", route)


def _interactions() -> None:
    op.create_table(
        "interactions",
        sa.Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("recommender", sa.Text(), nullable=False),
        sa.Column("user", sa.BigInteger(), nullable=False),
        sa.Column("item", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Float()),
        sa.Column("positive", sa.Boolean(), nullable=False),
        sa.Column("request_id", sa.Text()),
        sa.Column("at", _INSTANT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("interactions_by_user", "interactions", ["recommender", "user", "positive", "item", "at"])
    op.create_index("interactions_by_time", "interactions", ["recommender", "at", "seq", "positive", "item"])
