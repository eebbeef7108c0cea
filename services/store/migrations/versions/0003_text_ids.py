"""Text ids of events and of catalogue items, with the kinds of a recommender's ids; secrets; times of attributes of the catalogue."""

from __future__ import annotations

from alembic import op

revision = "text_ids"
down_revision = "catalogue_seeds"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE TABLE installation (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    for table, column in (
        ("recommenders", "user_ids"),
        ("recommenders", "item_ids"),
        ("interactions", "user_id"),
        ("interactions", "item_id"),
        ("catalogue_items", "id"),
        ("catalogue_items", "times"),
    ):
        op.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
    op.execute("UPDATE recommenders SET user_ids = 'integer', item_ids = 'integer'")  # no other kind existed before


def downgrade() -> None:
    raise NotImplementedError("Eyas migrates forward only; to go back, restore a backup")
