"""Logs the begin and the end of an outage, once each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from shared.domain.errors import is_explained

QUIET = 10.0
"""Seconds without a failure after which a shared dependency counts as recovered."""


class Outages:
    """Outages by key. Thread-safe.

    The first success at least `quiet` seconds after the last failure ends an outage, so intermittent failures are one outage.
    """

    def __init__(self, log: logging.Logger, quiet: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._quiet = quiet
        self._now = now
        self._failed_at: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    @property
    def open(self) -> bool:
        """Whether any outage is open."""
        return bool(self._failed_at)

    def fail(self, key: Hashable, message: str, *args: object, error: Exception | None = None, level: int = logging.ERROR) -> None:
        """`error` is logged with its traceback, unless its message is enough."""
        with self._lock:
            begins = key not in self._failed_at
            self._failed_at[key] = self._now()
        if begins:
            self._log.log(level, message, *args, exc_info=None if error is None or is_explained(error) else error)

    def succeed(self, key: Hashable, message: str, *args: object, level: int = logging.INFO) -> None:
        if key not in self._failed_at:
            return
        with self._lock:
            ends = key in self._failed_at and self._now() - self._failed_at[key] >= self._quiet
            if ends:
                del self._failed_at[key]
        if ends:
            self._log.log(level, message, *args)
