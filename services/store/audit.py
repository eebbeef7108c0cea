"""Audit log in SQL: one row per requested write, and which rows are exported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, func, insert, or_, select, update

from services.store.locks import all_committed, share_turn
from services.store.tables import audit
from shared.ports import Audited


class SqlAudit:
    """Implements AuditLog and AuditOutbox."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def begin(self, entry: Audited) -> int:
        values = {name: value for name, value in entry.__dict__.items() if name != "seq"}
        with self._engine.begin() as connection:
            share_turn(connection, "audit")
            return int(connection.execute(insert(audit).returning(audit.c.seq), values).scalar_one())

    def end(self, seq: int, status: int, recommender: str | None, detail: str) -> None:
        values = {"status": status, "recommender": recommender, "detail": detail}
        with self._engine.begin() as connection:
            connection.execute(update(audit).where(audit.c.seq == seq, audit.c.status.is_(None)).values(values))

    def list(
        self,
        *,
        recommenders: frozenset[str] | None = None,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> Sequence[Audited]:
        query = select(audit).order_by(audit.c.seq.desc()).limit(limit)
        if recommenders is not None:
            query = query.where(audit.c.recommender.in_(sorted(recommenders)))
        if actor is not None:
            query = query.where(audit.c.actor == actor)
        if action is not None:
            query = query.where(audit.c.action == action)
        if since is not None:
            query = query.where(audit.c.at >= since)
        if until is not None:
            query = query.where(audit.c.at < until)
        if before is not None:
            query = query.where(audit.c.seq < before)
        with self._reads.connect() as connection:
            return [_entry(row) for row in connection.execute(query)]

    def unexported(self, limit: int) -> Sequence[Audited]:
        # On PostgreSQL a read-only transaction would see the rows from before it had the lock.
        engine = self._engine if self._engine.dialect.name == "postgresql" else self._reads
        with engine.connect() as connection:
            if not all_committed(connection, "audit"):
                return []
            rows = connection.execute(select(audit).where(*_TO_EXPORT).order_by(audit.c.seq).limit(limit))
            return [_entry(row) for row in rows]

    def mark_exported(self, entries: Sequence[Audited]) -> None:
        with self._engine.begin() as connection:
            for has_outcome, state in ((False, 1), (True, 2)):
                numbers = [entry.seq for entry in entries if (entry.status is not None) == has_outcome]
                if numbers:
                    connection.execute(update(audit).where(audit.c.seq.in_(numbers)).values(exported=state))

    def backlog(self) -> tuple[int, datetime | None]:
        with self._reads.connect() as connection:
            first = select(audit.c.seq).where(*_TO_EXPORT).order_by(audit.c.seq)
            count = connection.execute(select(func.count()).select_from(first.limit(_MOST_COUNTED).subquery())).scalar_one()
            oldest = connection.execute(select(audit.c.at).where(audit.c.seq == first.limit(1).scalar_subquery())).scalar()
        return count, oldest


_MOST_COUNTED = 10_000
_TO_EXPORT = (audit.c.exported < 2, or_(audit.c.exported == 0, audit.c.status.is_not(None)))
"""Entries that are not exported, and those whose outcome came after their export."""


def _entry(row: Row[Any]) -> Audited:
    return Audited(**{name: value for name, value in row._mapping.items() if name != "exported"})
