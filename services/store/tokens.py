"""API tokens in SQL: digests, never the tokens' text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from services.store.columns import sound
from services.store.tables import tokens
from shared.domain.access import Role, Token
from shared.domain.errors import Conflict, Unreadable, no_such

log = logging.getLogger(__name__)


class SqlTokens:
    """Implements TokenStore."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._damaged: set[str] = set()

    def add(self, token: Token) -> None:
        values = dict(token.__dict__)
        values["role"] = token.role.value
        values["recommenders"] = None if token.recommenders is None else sorted(token.recommenders)
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(tokens).values(values))
        except IntegrityError:
            raise Conflict(f"token '{token.name}' already exists: revoke it first, or choose another name") from None

    def get(self, id: str) -> Token:
        with self._reads.connect() as connection:
            row = connection.execute(select(tokens).where(tokens.c.id == id)).one_or_none()
        if row is None:
            raise no_such("token", id)
        return _token(row)

    def list(self, *, limit: int = 100, before: str | None = None) -> Sequence[Token]:
        query = select(tokens).order_by(tokens.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(tokens.c.id < before)
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return [token for token in map(self._readable, rows) if token is not None]

    def revoke(self, id: str, now: datetime, actor: str) -> Token:
        good = update(tokens).where(tokens.c.id == id, tokens.c.revoked_at.is_(None))
        with self._engine.begin() as connection:
            connection.execute(good.values(revoked_at=now, revoked_by=actor))
        return self.get(id)

    def _readable(self, row: Row[Any]) -> Token | None:
        """Returns None for a damaged row, and logs each token once."""
        try:
            return _token(row)
        except Unreadable as error:
            if row.id not in self._damaged:
                self._damaged.add(row.id)
                log.error("token: damaged, left out of lists id=%s error=%s", row.id, error)
            return None


def _token(row: Row[Any]) -> Token:
    try:
        role, scope = Role(row.role), sound(row).recommenders
        if not isinstance(scope, list | None):
            raise ValueError("recommenders: not a list")
    except ValueError as error:
        raise Unreadable(f"token '{row.name}' ({row.id}) is damaged and not valid: {error}; revoke it and create another") from None
    return Token(
        id=row.id,
        name=row.name,
        digest=row.digest,
        role=role,
        recommenders=None if scope is None else frozenset(scope),
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by,
    )
