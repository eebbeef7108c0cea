"""Idempotency of API requests: a repeated request gets the stored response and is not executed again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, delete, insert, select, update

from services.store.locks import take_turn
from services.store.tables import stored_responses
from shared.ports import StoredResponse

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class SqlIdempotency:
    """Implements StoredResponses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(
        self, token: str, key: str, request: str, now: datetime, stale: timedelta, retention: timedelta
    ) -> tuple[bool, StoredResponse]:
        conditions = (stored_responses.c.token == token, stored_responses.c.key == key)
        with self._engine.begin() as connection:
            take_turn(connection, "answer", token, key)
            connection.execute(delete(stored_responses).where(stored_responses.c.at <= now - retention))
            row = connection.execute(select(stored_responses).where(*conditions)).one_or_none()
            if row is None:
                values = {"token": token, "key": key, "digest": request, "at": now, "taken_at": now}
                connection.execute(insert(stored_responses).values(values))
                return True, StoredResponse(request, now, now)
            answer = StoredResponse(row.digest, row.at, row.taken_at, row.status, row.headers or {}, row.body or "")
            if row.digest != request or row.status is not None or row.taken_at > now - stale:
                return False, answer
            connection.execute(update(stored_responses).where(*conditions).values(taken_at=now))
            return True, StoredResponse(request, row.at, now)

    def keep(self, token: str, key: str, taken_at: datetime, status: int, headers: Mapping[str, str], body: str) -> None:
        self._write(token, key, taken_at, status=status, headers=dict(headers), body=body)

    def release(self, token: str, key: str, taken_at: datetime) -> None:
        self._write(token, key, taken_at, taken_at=_LONG_AGO)

    def _write(self, token: str, key: str, claimed_at: datetime, **values: object) -> None:
        conditions = (
            stored_responses.c.token == token,
            stored_responses.c.key == key,
            stored_responses.c.taken_at == claimed_at,
            stored_responses.c.status.is_(None),
        )
        with self._engine.begin() as connection:
            connection.execute(update(stored_responses).where(*conditions).values(values))
