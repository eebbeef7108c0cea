"""Locks for writers of one user or one event id: a decision on stored rows stays right until it is written.

On SQLite a writer has already waited for all other writers. On PostgreSQL writers run concurrently and lock their names,
hashed to a fixed number of stripes in sorted order: this avoids deadlocks, and the server doesn't run out of locks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from sqlalchemy import Connection, text

STRIPES = 256
_EVENTS = 0x45796173
"""Separates these locks from all other locks of the database."""

_TAKE = text(f"SELECT pg_advisory_xact_lock({_EVENTS}, stripe) FROM unnest(CAST(:stripes AS int[])) AS stripe")  # noqa: S608  a constant


def take_turns(connection: Connection, names: Iterable[tuple[str, str | int]]) -> None:
    """Takes the locks until the transaction ends. Must be the transaction's first statement."""
    if connection.dialect.name == "postgresql":
        stripes = {zlib.crc32(f"{recommender}/{name}".encode()) % STRIPES for recommender, name in names}
        connection.execute(_TAKE, {"stripes": sorted(stripes)})
