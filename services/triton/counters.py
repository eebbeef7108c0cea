"""Sums Triton's success counters across restarts and unloads.

A version's counter vanishes when the version is unloaded, and all counters restart at zero with the server. So the model server reads
them before and after each change, and a base keeps what vanished or fell. Requests between the last reading and a crash are not
counted: the sum never exceeds Triton's own counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from shared.domain.errors import Unavailable

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Triton's model name and version."""


class Counters:
    """Sums of readings, without I/O."""

    def __init__(self) -> None:
        self._base: dict[Key, int] = {}
        self._last: dict[Key, int] = {}

    def saw(self, reading: Mapping[Key, int]) -> None:
        for key, last in self._last.items():
            if reading.get(key, -1) < last:
                self._base[key] = self._base.get(key, 0) + last
        self._last = dict(reading)

    def restarted(self) -> None:
        """Starts from zero: the readings of the new server are added to the sums."""
        self.saw({})

    def totals(self) -> dict[Key, int]:
        return {key: self._base.get(key, 0) + self._last.get(key, 0) for key in self._base.keys() | self._last.keys()}


class ReplicaCounts:
    """Counters of one server, by recommender and version. Thread-safe."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._lock = threading.Lock()

    def read(self, successes: Callable[[], Mapping[Key, int]]) -> None:
        """Reads the counters; keeps the last ones if the server does not answer."""
        with self._lock:  # read and add under the lock, so that readings stay in order
            try:
                self._counters.saw(successes())
            except Unavailable as error:
                log.debug("counters: reading failed error=%s", error)

    def restarted(self) -> None:
        with self._lock:
            self._counters.restarted()

    def totals(self, recommender_of: Callable[[str], str | None]) -> dict[tuple[str, int], int]:
        """Sums over all models of a recommender; ignores foreign models."""
        with self._lock:
            counts = self._counters.totals()
        totals: dict[tuple[str, int], int] = {}
        for (model, version), count in counts.items():
            recommender = recommender_of(model)
            if recommender is not None:
                totals[recommender, int(version)] = totals.get((recommender, int(version)), 0) + count
        return totals
