"""Text ids of events and of catalogue items, with the kinds of a recommender's ids; secrets; times of attributes of the catalogue."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Connection, text

revision = "text_ids"
down_revision = "catalogue_seeds"
branch_labels = None
depends_on = None


_COLUMNS = (
    ("recommenders", "user_ids"),
    ("recommenders", "item_ids"),
    ("interactions", "user_id"),
    ("interactions", "item_id"),
    ("catalogue_items", "id"),
    ("catalogue_items", "times"),
)
_TEXT_IDS = "SELECT count(*) FROM recommenders WHERE user_ids = 'text' OR item_ids = 'text'"


def upgrade() -> None:
    op.execute("CREATE TABLE installation (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    for table, column in _COLUMNS:
        op.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
    op.execute("UPDATE recommenders SET user_ids = 'integer', item_ids = 'integer'")  # no other kind existed before


def losses(connection: Connection) -> str:
    recommenders = connection.execute(text(_TEXT_IDS)).scalar_one()
    return f"the text ids of {recommenders} recommender{'s' if recommenders > 1 else ''}" if recommenders else ""


def downgrade() -> None:
    for table, column in _COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    op.execute("DROP TABLE installation")
