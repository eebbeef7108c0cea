"""Secrets of the installation, in the database: every process reads the same ones, and a backup has them."""

from __future__ import annotations

import secrets
from hashlib import blake2b

from sqlalchemy import Connection, Engine, inspect, select
from sqlalchemy.dialects import postgresql, sqlite

from services.store.tables import installation
from shared.domain.entity_ids import KEY_BYTES, IdHash

_ID_KEY = "id_key"


def installation_id(connection: Connection) -> str:
    """Returns the name of an installation in its backups: a digest of its key; empty before the first start."""
    if not inspect(connection).has_table(installation.name):
        return ""
    key = connection.execute(select(installation.c.value).where(installation.c.name == _ID_KEY)).scalar()
    return blake2b(digest_size=8, key=bytes.fromhex(key), person=b"eyas-backup").hexdigest() if key else ""


def id_hash(engine: Engine) -> IdHash:
    """Returns the hash of text ids. The first process of an installation makes the key."""
    insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
    new = insert(installation).values(name=_ID_KEY, value=secrets.token_hex(KEY_BYTES)).on_conflict_do_nothing()
    with engine.begin() as connection:
        connection.execute(new)
        value = connection.execute(select(installation.c.value).where(installation.c.name == _ID_KEY)).scalar_one()
    return IdHash(bytes.fromhex(value))
