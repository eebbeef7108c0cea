"""Who fails again and again isn't asked for a while: nobody waits for a version that doesn't answer.

After a few failures in a row a key is left alone, at first for a moment, then for longer; when its time is over one call is let through
and decides for all. Success forgets everything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

FAILURES = 3
"""In a row."""
PAUSE = 0.5
LONGEST = 2.0


@dataclass(frozen=True)
class _Broken:
    failures: int
    until: float = 0.0
    pause: float = 0.0
    """0: it is still asked."""
    tried: bool = False
    """One call is finding out."""


class Breaker:
    """Safe to share between threads. Whoever was let through says what became of it, whatever happened."""

    def __init__(
        self, failures: int = FAILURES, pause: float = PAUSE, longest: float = LONGEST, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures, self._pause, self._longest, self._now = failures, pause, longest, now
        self._broken: dict[Hashable, _Broken] = {}
        self._lock = threading.Lock()

    def lets(self, key: Hashable) -> bool:
        """Whether to ask."""
        if key not in self._broken:
            return True
        with self._lock:
            state = self._broken.get(key)
            if state is None or not state.pause:
                return True
            if state.tried or self._now() < state.until:
                return False
            self._broken[key] = replace(state, tried=True)
            return True

    def failed(self, key: Hashable) -> None:
        with self._lock:
            state = self._broken.get(key, _Broken(0))
            if state.failures + 1 < self._failures:
                self._broken[key] = _Broken(state.failures + 1)
            elif not state.pause or state.tried:  # others were under way when it broke: they count for nothing
                pause = min(self._longest, 2 * state.pause or self._pause)
                self._broken[key] = _Broken(state.failures + 1, self._now() + pause, pause)

    def answered(self, key: Hashable) -> None:
        if key in self._broken:
            with self._lock:
                self._broken.pop(key, None)
