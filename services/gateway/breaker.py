"""Circuit breaker per key: no request waits for a version that repeatedly fails.

After several failures in a row a key is not called for a pause; the pause doubles up to a limit. After the pause one trial call decides.
A success resets the key.
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
    """0: still called."""
    tried: bool = False
    """A trial call is under way."""


class Breaker:
    """Thread-safe. Each caller that `lets` admitted must report `failed` or `answered`, also after an exception."""

    def __init__(
        self, failures: int = FAILURES, pause: float = PAUSE, longest: float = LONGEST, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures, self._pause, self._longest, self._now = failures, pause, longest, now
        self._broken: dict[Hashable, _Broken] = {}
        self._lock = threading.Lock()

    def lets(self, key: Hashable) -> bool:
        """Whether the caller may call."""
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
            elif not state.pause or state.tried:  # calls from before the pause do not count
                pause = min(self._longest, 2 * state.pause or self._pause)
                self._broken[key] = _Broken(state.failures + 1, self._now() + pause, pause)

    def answered(self, key: Hashable) -> None:
        if key in self._broken:
            with self._lock:
                self._broken.pop(key, None)
