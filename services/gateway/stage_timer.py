"""How long each stage of some requests takes that are answered together."""

from __future__ import annotations

import time


class StageTimer:
    """For one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.perf_counter()

    def lap(self, stage: str) -> float:
        """What passed since the last lap was that stage."""
        now = time.perf_counter()
        took = now - self._at
        self.seconds[stage] = self.seconds.get(stage, 0.0) + took
        self._at = now
        return took
