"""A recommender that was deleted takes nothing new."""

from __future__ import annotations

from sqlalchemy import Connection, select

from services.store.tables import recommenders
from shared.domain.errors import no_such


def refuse_deleted(connection: Connection, recommender: str) -> None:
    """Whoever deletes it waits until this transaction has ended, and then sees what it has made."""
    table = recommenders.c
    row = select(table.deleted_at).where(table.name == recommender).with_for_update(read=True, key_share=True)
    if connection.execute(row).scalar() is not None:
        raise no_such("recommender", recommender)
