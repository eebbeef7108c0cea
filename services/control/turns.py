"""Whose turn it is among the pending runs: one look at the queue for many of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from shared.domain.queue import Turn, admit
from shared.domain.run import RunStatus
from shared.ports import Clock, Record, RunStore
from shared.telemetry import metrics

_FRESH = timedelta(milliseconds=200)
_ELSEWHERE = "in the queue"


class Turns:
    """Remembers for a moment who may start, so that a thousand pending runs are one query; whoever was let in counts as active from
    then on. Of several control planes only the one that `may_admit` lets anybody in."""

    def __init__(self, store: RunStore, clock: Clock, limit: int, may_admit: Callable[[], bool] = lambda: True) -> None:
        self._store = store
        self._clock = clock
        self._limit = limit
        self._may_admit = may_admit
        self._turns: Mapping[str, Turn] = {}
        self._looked: datetime | None = None
        self._let_in: set[str] = set()

    def wait(self, record: Record[RunStatus]) -> str | None:
        """What a pending run waits for; None when it may start now."""
        if not self._may_admit():
            self._let_in.clear()
            self._looked = None
            return record.status.reason or _ELSEWHERE
        now = self._clock.now()
        if self._looked is None or not timedelta(0) <= now - self._looked < _FRESH or record.id not in self._turns:
            self._look(now)
        turn = self._turns.get(record.id)
        if turn is None:  # it has ended since it was read
            return record.status.reason or _ELSEWHERE
        if turn.waits is None:
            self._let_in.add(record.id)
        return turn.waits

    def _look(self, now: datetime) -> None:
        rows = self._store.queued()
        self._let_in &= {row.id for row in rows}
        self._turns = admit([replace(row, active=True) if row.id in self._let_in else row for row in rows], self._limit)
        self._looked = now
        active = sum(row.active for row in rows)
        metrics.QUEUE.labels("active").set(active)
        metrics.QUEUE.labels("waiting").set(len(rows) - active)
