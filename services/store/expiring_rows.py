"""Expiring rows in SQL: outputs for stage reuse, and responses for idempotency."""

from __future__ import annotations

import time
from datetime import datetime

from sqlalchemy import Engine, delete, func, select

from services.store.tables import audit, history, stage_outputs, stored_responses
from shared.ports import LogName

_AT_ONCE = 500
_REST = 0.05
"""Seconds between two transactions, for other writers."""


class SqlExpiringRows:
    """Implements ExpiringRows."""

    def __init__(self, engine: Engine, keeps_unexported: bool = False) -> None:
        """`keeps_unexported`: entries of the audit log stay until they are exported."""
        self._keeps_unexported = keeps_unexported
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def reusable(self) -> frozenset[str]:
        with self._reads.connect() as connection:
            return frozenset(connection.execute(select(stage_outputs.c.attempt).distinct()).scalars())

    def forget(self, outputs_before: datetime, answers_before: datetime) -> int:
        with self._engine.begin() as connection:
            outputs = connection.execute(delete(stage_outputs).where(stage_outputs.c.at < outputs_before)).rowcount
            return outputs + connection.execute(delete(stored_responses).where(stored_responses.c.at < answers_before)).rowcount

    def forget_log(self, log: LogName, before: datetime) -> int:
        """Reads from the oldest entry on, and stops at the first portion with newer ones."""
        table = history if log == "history" else audit
        rows = 0
        while True:
            with self._engine.begin() as connection:
                oldest = connection.execute(select(table.c.seq, table.c.at).order_by(table.c.seq).limit(_AT_ONCE)).all()
                old = [row.seq for row in oldest if row.at < before]
                if log == "audit" and self._keeps_unexported and old:
                    waiting = connection.execute(select(func.min(audit.c.seq)).where(audit.c.exported == 0)).scalar()
                    old = [seq for seq in old if waiting is None or seq < waiting]
                if old:
                    rows += connection.execute(delete(table).where(table.c.seq.in_(old))).rowcount
            if len(old) < _AT_ONCE:
                return rows
            time.sleep(_REST)
