"""Durations of the stages of a batch of requests."""

from __future__ import annotations

import time


class StageTimer:
    """For one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.perf_counter()

    def lap(self, stage: str) -> float:
        """Adds the time since the last lap to the stage."""
        now = time.perf_counter()
        took = now - self._at
        self.seconds[stage] = self.seconds.get(stage, 0.0) + took
        self._at = now
        return took
