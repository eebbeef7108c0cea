"""One of several control planes on one database: its sign of life, and what only one of them does at a time.

All of it only saves double work. Two replicas that both believe that a row, or a step, is theirs do it twice and harm nothing:
rows are committed by compare-and-swap, and steps are idempotent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from shared.ports import REPLICAS, Clock, Leases, replica_lease

log = logging.getLogger(__name__)

TERM = timedelta(seconds=15)
"""How long the others wait for a replica that died, by the clock of the store."""


class Replica:
    """`beat` belongs into a loop of its own, at the interval `beat_every`: a long step must not stop the heart."""

    def __init__(self, holder: str, leases: Leases, clock: Clock, term: timedelta | None = None) -> None:
        self.holder = holder
        term = term or TERM
        self.beat_every = term / 3
        self._leases = leases
        self._clock = clock
        self._term = term
        self._held: dict[str, datetime] = {}
        self._terms: dict[str, int] = {}
        self._steps: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def beat(self) -> None:
        """Renews the replica's lease, and those of the steps that it does."""
        with self._lock:
            if self._closed:
                return
            self._take(replica_lease(self.holder))
            for name in self._steps & set(self._held):
                self._take(name)

    @property
    def alive(self) -> bool:
        """The others know that it lives, so what it claims stays its own."""
        return self._holds(replica_lease(self.holder))

    def count(self) -> int:
        """How many replicas live."""
        return len(self._leases.live(REPLICAS))

    def single(self, name: str, step: Callable[[], object]) -> Callable[[], None]:
        """The step, done by one replica at a time: by this one while it holds the lease of that name."""
        lease = f"step/{name}"
        self._steps.add(lease)

        def guarded() -> None:
            if self.alive and (self._holds(lease) or self._is_free(lease)):
                step()

        return guarded

    def term(self, name: str) -> int:
        """Rises whenever a step comes to this replica anew: it was not its own for a moment before."""
        return self._terms.get(f"step/{name}", 0)

    def close(self) -> None:
        """Hands everything over at once; after the loops have stopped."""
        with self._lock:
            self._closed = True
            for name in (*self._steps, replica_lease(self.holder)):
                self._leases.release(name, self.holder)
            self._held.clear()

    def _is_free(self, lease: str) -> bool:
        """Takes it if so. Looks before it takes: a replica that waits for its turn writes nothing."""
        if self._leases.live(lease):
            return False
        with self._lock:
            return not self._closed and self._take(lease)

    def _take(self, lease: str) -> bool:
        now = self._clock.now()
        was_held = self._holds(lease)
        if self._leases.hold(lease, self.holder, self._term):
            self._terms[lease] = self._terms.get(lease, 0) + (not was_held)
            self._held[lease] = now
            return True
        if self._held.pop(lease, None) is not None:
            log.warning("%s: another replica has taken over", lease)
        return False

    def _holds(self, lease: str) -> bool:
        """By this process's clock, from a moment before the lease was granted. A clock that was set back says no."""
        since = self._held.get(lease)
        return since is not None and timedelta(0) <= self._clock.now() - since < self._term
