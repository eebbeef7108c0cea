"""Writers of one user, or of one event id, take turns: what is decided upon what is there already stays right until it is written.

On SQLite whoever writes has waited for all others already. On PostgreSQL writers run side by side, and each locks what it is about:
hashed to a fixed number of stripes, taken in one order, so that no two wait for each other and no server runs out of locks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from sqlalchemy import Connection, text

STRIPES = 256
_EVENTS = 0x45796173
"""Keeps these locks apart from all others of the database's."""

_TAKE = text(f"SELECT pg_advisory_xact_lock({_EVENTS}, stripe) FROM unnest(CAST(:stripes AS int[])) AS stripe")  # noqa: S608  a number of ours


def take_turns(connection: Connection, names: Iterable[tuple[str, str | int]]) -> None:
    """Its transaction's first statement; held to its end."""
    if connection.dialect.name == "postgresql":
        stripes = {zlib.crc32(f"{recommender}/{name}".encode()) % STRIPES for recommender, name in names}
        connection.execute(_TAKE, {"stripes": sorted(stripes)})
