"""Several control planes on one database, deletion, reuse of stages, tags, tokens, the audit log, and answers that are given again.

Said here once more and not imported: a step must do the same for ever, whatever becomes of the code's tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_INSTANT = sa.BigInteger()  # microseconds since 1970
_JSON = sa.Text()
_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _replicas()
    _deletion()
    _lists()
    _stages()
    _tags()
    _access()
    _answers()


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only: to go back, restore a backup")


def _replicas() -> None:
    op.add_column("resources", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("resources", sa.Column("holder", sa.Text()))
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", _INSTANT, nullable=False),
    )


def _deletion() -> None:
    op.add_column("recommenders", sa.Column("deleted_at", _INSTANT))
    op.add_column("route_history", sa.Column("ended", _INSTANT))


def _lists() -> None:
    for name, narrowed in (("active", "finished"), ("state", "state")):
        op.create_index(f"resources_{name}", "resources", ["kind", narrowed, "created_at", "id"])
        op.create_index(f"resources_{name}_of", "resources", ["kind", "recommender", narrowed, "created_at", "id"])


def _stages() -> None:
    op.create_table(
        "stage_outputs",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("stage", sa.Text(), primary_key=True),
        sa.Column("digest", sa.Text(), primary_key=True),
        sa.Column("parts", _JSON, nullable=False),
        sa.Column("attempt", sa.Text(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
    )
    op.create_index("stage_outputs_newest", "stage_outputs", ["recommender", "stage", "at"])


def _tags() -> None:
    op.create_table(
        "version_tags",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("tag", sa.Text(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
    )
    op.create_table(
        "collected_versions",
        sa.Column("recommender", sa.Text(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", _INSTANT, nullable=False),
    )


def _access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("recommenders", _JSON),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", _INSTANT),
        sa.Column("revoked_at", _INSTANT),
        sa.Column("revoked_by", sa.Text()),
    )
    living = sa.text("revoked_at IS NULL")
    op.create_index("tokens_living_name", "tokens", ["name"], unique=True, sqlite_where=living, postgresql_where=living)
    op.create_table(
        "audit",
        sa.Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("recommender", sa.Text()),
        sa.Column("status", sa.Integer()),
        sa.Column("detail", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_of", "audit", ["recommender", "seq"])


def _answers() -> None:
    op.create_table(
        "answers",
        sa.Column("token", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("headers", _JSON),
        sa.Column("body", sa.Text()),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("taken_at", _INSTANT, nullable=False),
    )
    op.create_index("answers_age", "answers", ["at"])
