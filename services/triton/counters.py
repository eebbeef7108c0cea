"""Triton's success counters, summed over what Triton forgets.

A version's counter vanishes when the version leaves the list, and all of them start at zero with the server. So the model server
reads them before and after each change; what vanished or fell is kept as a base. What was counted between the last reading and
a crash is lost: the sum never says more than Triton has said.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from shared.domain.errors import Unavailable

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Model and version, in Triton's words."""


class Counters:
    """Pure: readings in, sums out."""

    def __init__(self) -> None:
        self._base: dict[Key, int] = {}
        self._last: dict[Key, int] = {}

    def saw(self, reading: Mapping[Key, int]) -> None:
        for key, last in self._last.items():
            if reading.get(key, -1) < last:
                self._base[key] = self._base.get(key, 0) + last
        self._last = dict(reading)

    def restarted(self) -> None:
        """The server is a new one: whatever it says from now on comes on top."""
        self.saw({})

    def totals(self) -> dict[Key, int]:
        return {key: self._base.get(key, 0) + self._last.get(key, 0) for key in self._base.keys() | self._last.keys()}


class Tally:
    """Counters that are read from a server, by recommender and version. Safe to share between threads."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._lock = threading.Lock()

    def read(self, successes: Callable[[], Mapping[Key, int]]) -> None:
        """A server that doesn't answer leaves what is known."""
        with self._lock:  # a reading is taken and counted in one: an older one can't come after a newer one
            try:
                self._counters.saw(successes())
            except Unavailable as error:
                log.debug("counters were not read: %s", error)

    def restarted(self) -> None:
        with self._lock:
            self._counters.restarted()

    def totals(self, recommender_of: Callable[[str], str | None]) -> dict[tuple[str, int], int]:
        """Over all models of a recommender; what isn't ours doesn't count."""
        with self._lock:
            counts = self._counters.totals()
        totals: dict[tuple[str, int], int] = {}
        for (model, version), count in counts.items():
            recommender = recommender_of(model)
            if recommender is not None:
                totals[recommender, int(version)] = totals.get((recommender, int(version)), 0) + count
        return totals
