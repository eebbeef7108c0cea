"""Audit log in SQL: one row per requested write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Engine, insert, select, update

from services.store.tables import audit
from shared.ports import Audited


class SqlAudit:
    """Implements AuditLog."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def begin(self, entry: Audited) -> int:
        values = {name: value for name, value in entry.__dict__.items() if name != "seq"}
        with self._engine.begin() as connection:
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
            return [Audited(**row._mapping) for row in connection.execute(query)]
