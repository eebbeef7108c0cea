"""Watchdog: kills a server that runs but does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGS = 10.0
"""Seconds of silence until a server is killed."""
UNANSWERED = 3
"""Minimum unanswered checks in a row: a check that spans a pause of this process proves nothing."""


class Watchdog:
    def __init__(
        self, answers: Callable[[], bool], end: Callable[[], bool], hangs: float = HANGS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`answers` checks the server, within its own timeout; `end` kills the server, and returns whether it did."""
        self._answers = answers
        self._end = end
        self._hangs = hangs
        self._clock = clock
        self._unanswered: list[float] = []
        """Times of the checks since the last answer."""
        self.ended = False
        """Whether the last check killed the server."""

    def ask(self) -> bool:
        """Checks the server; returns whether it answered."""
        asked_at, self.ended = self._clock(), False
        if self._answers():
            self._unanswered.clear()
            return True
        self._unanswered.append(asked_at)
        if len(self._unanswered) >= UNANSWERED and self._clock() - self._unanswered[0] >= self._hangs:
            self._unanswered.clear()
            self.ended = self._end()
        return False
