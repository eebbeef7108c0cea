"""Expiring rows in SQL: outputs for stage reuse, and responses for idempotency."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Engine, delete, select

from services.store.tables import stage_outputs, stored_responses


class SqlExpiringRows:
    """Implements ExpiringRows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def reusable(self) -> frozenset[str]:
        with self._reads.connect() as connection:
            return frozenset(connection.execute(select(stage_outputs.c.attempt).distinct()).scalars())

    def forget(self, outputs_before: datetime, answers_before: datetime) -> int:
        with self._engine.begin() as connection:
            outputs = connection.execute(delete(stage_outputs).where(stage_outputs.c.at < outputs_before)).rowcount
            return outputs + connection.execute(delete(stored_responses).where(stored_responses.c.at < answers_before)).rowcount
