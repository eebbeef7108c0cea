"""Admission of pending runs: one query of the queue serves many runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from shared.domain.queue import AdmissionDecision, admit
from shared.ports import Clock, Leases, RunRecord, RunStore
from shared.telemetry import metrics

_FRESH = timedelta(milliseconds=200)
_TERM = timedelta(seconds=6)
_LEASE = "runs/admit"
_ELSEWHERE = "in the queue"


class AdmissionLease:
    """Lease under which one control plane at a time admits runs. The holder keeps the lease until its admitted runs have visibly started,
    so that the next holder counts them. If the holder dies, nobody admits runs until the term is over."""

    def __init__(self, leases: Leases, holder: str, clock: Clock) -> None:
        self._leases = leases
        self._holder = holder
        self._clock = clock
        self._since: datetime | None = None

    @property
    def is_held(self) -> bool:
        """True while the rest of the term suffices to start what is admitted."""
        return self._since is not None and timedelta(0) <= self._clock.now() - self._since < _TERM / 2

    def enter(self) -> bool:
        now = self._clock.now()
        self._since = now if self._leases.hold(_LEASE, self._holder, _TERM) else None
        return self.is_held

    def leave(self) -> None:
        if self._since is not None:
            self._since = None
            self._leases.release(_LEASE, self._holder)


class Admissions:
    """Admission decisions, cached for a moment so that a thousand pending runs cost one query; an admitted run counts as active. With
    several control planes (`stile` is set), the queue is read again once the lease is held."""

    def __init__(self, store: RunStore, clock: Clock, limit: int, stile: AdmissionLease | None = None) -> None:
        self._store = store
        self._clock = clock
        self._limit = limit
        self._stile = stile
        self._turns: Mapping[str, AdmissionDecision] = {}
        self._looked: datetime | None = None
        self._pending: frozenset[str] = frozenset()
        self._let_in: set[str] = set()

    def wait(self, record: RunRecord) -> str | None:
        """Returns what a pending run waits for; None when it may start now."""
        now = self._clock.now()
        if self._looked is None or not timedelta(0) <= now - self._looked < _FRESH or record.id not in self._turns:
            self._look(now)
            if self._stile is not None and not self._let_in:
                self._stile.leave()
        waits = self._waits(record)
        if waits is not None:
            return waits
        if self._stile is not None and not self._stile.is_held:
            if not self._stile.enter():
                return record.status.reason or _ELSEWHERE
            self._let_in.clear()  # other control planes may have admitted runs since: only the rows say which runs have started
            self._look(now)
            waits = self._waits(record)
            if waits is not None:
                return waits
        self._let_in.add(record.id)
        return None

    def come(self) -> Collection[str]:
        """Returns the runs that may start now and are not admitted yet. Makes no query while no pending run is known."""
        if not self._pending - self._let_in:
            return ()
        now = self._clock.now()
        if self._looked is None or not timedelta(0) <= now - self._looked < _FRESH:
            self._look(now)
        return [id for id in self._pending - self._let_in if self._turns[id].waits is None]

    def _waits(self, record: RunRecord) -> str | None:
        turn = self._turns.get(record.id)
        return turn.waits if turn is not None else record.status.reason or _ELSEWHERE  # without a turn: the run has ended since it was read

    def _look(self, now: datetime) -> None:
        rows = self._store.queued()
        self._pending = frozenset(row.id for row in rows if not row.active)
        self._let_in &= self._pending
        self._turns = admit([replace(row, active=True) if row.id in self._let_in else row for row in rows], self._limit)
        self._looked = now
        active = sum(row.active for row in rows)
        metrics.QUEUE.labels("active").set(active)
        metrics.QUEUE.labels("waiting").set(len(rows) - active)
