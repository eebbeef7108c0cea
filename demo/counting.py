"""Counters of the simulator: answers and hits by second and version, and failed requests."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bin:
    """Counts of a version in one second."""

    second: int
    version: int
    variant: str
    answers: int
    hits: int


class Tally:
    """Thread-safe counters; seconds count from construction."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._answers: Counter[tuple[int, int, str]] = Counter()
        self._hits: Counter[tuple[int, int, str]] = Counter()
        self._failures: Counter[str] = Counter()

    def now(self) -> float:
        return self._clock() - self._started

    def answer(self, version: int, variant: str, hit: bool) -> None:
        key = (int(self.now()), version, variant)
        with self._lock:
            self._answers[key] += 1
            self._hits[key] += hit

    def failure(self, reason: str) -> None:
        with self._lock:
            self._failures[reason] += 1

    @property
    def answers(self) -> int:
        with self._lock:
            return self._answers.total()

    @property
    def failed(self) -> int:
        with self._lock:
            return self._failures.total()

    def failures(self) -> dict[str, int]:
        with self._lock:
            return dict(self._failures)

    def bins(self) -> list[Bin]:
        with self._lock:
            return [Bin(*key, answers=count, hits=self._hits[key]) for key, count in sorted(self._answers.items())]

    def rate(self, since: float, until: float, version: int | None = None) -> tuple[int, float | None]:
        """Returns answers and hit rate of the whole seconds within [since, until); the rate is None without answers."""
        bins = [row for row in self.bins() if since <= row.second and row.second + 1 <= until and version in (None, row.version)]
        answers = sum(row.answers for row in bins)
        return answers, (sum(row.hits for row in bins) / answers if answers else None)
