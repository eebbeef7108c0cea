"""Replica of the control plane on a shared database: its heartbeat, and steps that one replica at a time runs.

This only saves double work. Two replicas that both own a row or a step do it twice without harm: rows are committed by compare-and-swap,
and steps are idempotent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from shared.ports import REPLICAS, Clock, Leases, replica_lease

log = logging.getLogger(__name__)

TERM = timedelta(seconds=15)
"""How long other replicas wait for a dead replica, by the clock of the store."""


class Replica:
    """Call `beat` from a loop of its own, every `beat_every`: a long step must not stop the heartbeat."""

    def __init__(self, holder: str, leases: Leases, clock: Clock, term: timedelta | None = None) -> None:
        self.holder = holder
        term = term or TERM
        self.beat_every = term / 3
        self._leases = leases
        self._clock = clock
        self._term = term
        self._lease_ends: dict[str, datetime] = {}
        self._terms: dict[str, int] = {}
        self._steps: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def beat(self) -> None:
        """Renews the lease of the replica, and those of its steps."""
        with self._lock:
            if self._closed:
                return
            self._take(replica_lease(self.holder))
            for name in self._steps & set(self._lease_ends):
                self._take(name)

    @property
    def alive(self) -> bool:
        """True while the other replicas know that it lives and leave its claims alone."""
        return self._holds(replica_lease(self.holder))

    def count(self) -> int:
        """Returns the number of live replicas."""
        return len(self._leases.live(REPLICAS))

    def single(self, name: str, step: Callable[[], object]) -> Callable[[], None]:
        """Wraps a step so that only the replica with the lease of that name runs it."""
        lease = f"step/{name}"
        self._steps.add(lease)

        def guarded() -> None:
            if self.alive and (self._holds(lease) or self._is_free(lease)):
                step()

        return guarded

    def term(self, name: str) -> int:
        """Returns a number that rises whenever this replica gets the step after a time without it."""
        return self._terms.get(f"step/{name}", 0)

    def close(self) -> None:
        """Releases all leases at once; call after the loops have stopped."""
        with self._lock:
            self._closed = True
            for name in (*self._steps, replica_lease(self.holder)):
                self._leases.release(name, self.holder)
            self._lease_ends.clear()

    def _is_free(self, lease: str) -> bool:
        """Takes the lease if it is free. Reads first: a waiting replica writes nothing."""
        if self._leases.live(lease):
            return False
        with self._lock:
            return not self._closed and self._take(lease)

    def _take(self, lease: str) -> bool:
        now = self._clock.now()
        was_held = self._holds(lease)
        if self._leases.hold(lease, self.holder, self._term):
            self._terms[lease] = self._terms.get(lease, 0) + (not was_held)
            self._lease_ends[lease] = now
            return True
        if self._lease_ends.pop(lease, None) is not None:
            log.warning("lease: taken over by another replica lease=%s", lease)
        return False

    def _holds(self, lease: str) -> bool:
        """Checks by this process's clock, from a moment before the grant. Returns False after the clock was set back."""
        since = self._lease_ends.get(lease)
        return since is not None and timedelta(0) <= self._clock.now() - since < self._term
