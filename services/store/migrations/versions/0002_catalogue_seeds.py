"""Second migration: the attribute names of each catalogue, and the newest seed of its items table."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "catalogue_seeds"
down_revision = "initial"
branch_labels = None
depends_on = None

_catalogues = sa.table("catalogues", sa.column("recommender", sa.Text), sa.column("names", sa.Text))
_items = sa.table("catalogue_items", *(sa.column(name, sa.Text) for name in ("recommender", "attributes")))


def upgrade() -> None:
    for column in (
        sa.Column("names", sa.Text),
        sa.Column("seed_version", sa.Integer),
        sa.Column("seed_digest", sa.Text),
        sa.Column("seed_left", sa.Integer),
    ):
        op.add_column("catalogues", column)
    names: dict[str, set[str]] = {}
    query = sa.select(_items.c.recommender, _items.c.attributes)
    for recommender, attributes in op.get_bind().execute(query, execution_options={"yield_per": 5_000}):
        names.setdefault(recommender, set()).update(_names(attributes))
    for recommender, of in names.items():
        op.execute(_catalogues.update().where(_catalogues.c.recommender == recommender).values(names=json.dumps(sorted(of))))


def _names(attributes: str) -> list[str]:
    """Returns nothing for a damaged item."""
    try:
        read = json.loads(attributes)
    except (ValueError, RecursionError):
        return []
    return list(read) if isinstance(read, dict) else []


def losses(connection: sa.Connection) -> str:
    """Returns an empty text: an upgrade computes the names and seeds again from the items."""
    return ""


def downgrade() -> None:
    for column in ("names", "seed_version", "seed_digest", "seed_left"):
        op.execute(f"ALTER TABLE catalogues DROP COLUMN {column}")
