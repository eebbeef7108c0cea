"""Secrets of the installation, in the database: every process reads the same ones, and a backup has them."""

from __future__ import annotations

import secrets

from sqlalchemy import Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from services.store.tables import installation
from shared.domain.entity_ids import KEY_BYTES, IdHash

_ID_KEY = "id_key"


def id_hash(engine: Engine) -> IdHash:
    """Returns the hash of text ids. The first process of an installation makes the key."""
    insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
    new = insert(installation).values(name=_ID_KEY, value=secrets.token_hex(KEY_BYTES)).on_conflict_do_nothing()
    with engine.begin() as connection:
        connection.execute(new)
        value = connection.execute(select(installation.c.value).where(installation.c.name == _ID_KEY)).scalar_one()
    return IdHash(bytes.fromhex(value))
