"""Ends a server that lives and does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGS = 10.0
"""Seconds of silence until a server is ended."""
UNANSWERED = 3
"""Questions in a row that nobody answered, at least: one that was asked while this process slept says nothing."""


class Watchdog:
    def __init__(
        self, answers: Callable[[], bool], end: Callable[[], bool], hangs: float = HANGS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`answers` asks the server, and takes no longer than its own timeout; `end` kills it, and tells whether it did."""
        self._answers = answers
        self._end = end
        self._hangs = hangs
        self._clock = clock
        self._unanswered: list[float] = []
        """When each question was asked since the last answer."""
        self.ended = False
        """Whether the last question ended the server."""

    def ask(self) -> bool:
        """Whether it answered."""
        asked_at, self.ended = self._clock(), False
        if self._answers():
            self._unanswered.clear()
            return True
        self._unanswered.append(asked_at)
        if len(self._unanswered) >= UNANSWERED and self._clock() - self._unanswered[0] >= self._hangs:
            self._unanswered.clear()
            self.ended = self._end()
        return False
