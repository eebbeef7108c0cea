"""Guard against new rows of a deleted recommender."""

from __future__ import annotations

from sqlalchemy import Connection, select

from services.store.tables import recommenders
from shared.domain.errors import no_such


def refuse_deleted(connection: Connection, recommender: str) -> None:
    """Raises NotFound if the recommender is deleted. A deletion waits for this transaction and then sees its rows."""
    table = recommenders.c
    row = select(table.deleted_at).where(table.name == recommender).with_for_update(read=True, key_share=True)
    if connection.execute(row).scalar() is not None:
        raise no_such("recommender", recommender)
