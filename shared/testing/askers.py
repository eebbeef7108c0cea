"""Load threads that score one version of a tiny unit repeatedly, and record each call."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from shared.ports import ModelServer
from shared.testing.threads import Threads

USERS, ITEMS = np.array([1, 1, 1], dtype=np.int64), np.array([10, 20, 30], dtype=np.int64)
FEED = {"user": USERS, "item": ITEMS, "tags": np.array([["a", ""], ["b", ""], ["", ""]])}


def scores(number: int) -> list[float]:
    return [float(1 + number * item) for item in ITEMS]


@dataclass(frozen=True)
class ScoreCall:
    at: float
    """Start of the call on the monotonic clock."""
    seconds: float
    failure: str = ""


class Askers(Threads):
    """Context manager; a wrong score is a failure, as is an error. A pause between requests puts load on the changes under test,
    not on the machine."""

    def __init__(self, server: ModelServer, recommender: str, number: int, threads: int = 1, pause: float = 0.0) -> None:
        super().__init__(*[self._ask] * threads)
        self._server, self._recommender, self._number, self._pause = server, recommender, number, pause
        self.calls: list[ScoreCall] = []

    @property
    def answered(self) -> int:
        return len(self.calls) - len(self.failures)

    @property
    def failures(self) -> list[str]:
        return [call.failure for call in self.calls if call.failure]

    def latencies(self) -> list[float]:
        """Returns the seconds of the successful calls, sorted."""
        return sorted(call.seconds for call in self.calls if not call.failure)

    def _ask(self) -> None:
        expected = scores(self._number)
        while not self.over.wait(self._pause):
            began, failure = time.monotonic(), ""
            try:
                actual = self._server.score(self._recommender, self._number, FEED).tolist()
                failure = "" if actual == expected else f"wrong scores: {actual}"
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            self.calls.append(ScoreCall(began, time.monotonic() - began, failure))
