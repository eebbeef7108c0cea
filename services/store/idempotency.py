"""Idempotency of API requests: a repeated request gets the stored response and is not executed again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, delete, insert, select, update

from services.store.locks import take_turn
from services.store.tables import answers
from shared.ports import Answer

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class SqlIdempotency:
    """Implements Answers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, token: str, key: str, request: str, now: datetime, stale: timedelta, retention: timedelta) -> tuple[bool, Answer]:
        conditions = (answers.c.token == token, answers.c.key == key)
        with self._engine.begin() as connection:
            take_turn(connection, "answer", token, key)
            connection.execute(delete(answers).where(answers.c.at <= now - retention))
            row = connection.execute(select(answers).where(*conditions)).one_or_none()
            if row is None:
                values = {"token": token, "key": key, "request": request, "at": now, "taken_at": now}
                connection.execute(insert(answers).values(values))
                return True, Answer(request, now, now)
            answer = Answer(row.request, row.at, row.taken_at, row.status, row.headers or {}, row.body or "")
            if row.request != request or row.status is not None or row.taken_at > now - stale:
                return False, answer
            connection.execute(update(answers).where(*conditions).values(taken_at=now))
            return True, Answer(request, row.at, now)

    def keep(self, token: str, key: str, taken_at: datetime, status: int, headers: Mapping[str, str], body: str) -> None:
        self._write(token, key, taken_at, status=status, headers=dict(headers), body=body)

    def release(self, token: str, key: str, taken_at: datetime) -> None:
        self._write(token, key, taken_at, taken_at=_LONG_AGO)

    def _write(self, token: str, key: str, claimed_at: datetime, **values: object) -> None:
        conditions = (answers.c.token == token, answers.c.key == key, answers.c.taken_at == claimed_at, answers.c.status.is_(None))
        with self._engine.begin() as connection:
            connection.execute(update(answers).where(*conditions).values(values))
