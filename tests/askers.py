"""Many threads that ask one version without end, and what became of each request."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from shared.ports import ModelServer
from shared.testing.model_server_suite import FEED, scores


@dataclass(frozen=True)
class Asked:
    at: float
    """When it was sent, on the monotonic clock."""
    seconds: float
    failure: str = ""


class Askers:
    """Threads on one version, as a context; a wrong score is a failure like no answer. They pause between two requests: it is the
    changes that are to be under load, not this machine."""

    def __init__(self, server: ModelServer, recommender: str, number: int, threads: int = 32, pause: float = 0.05) -> None:
        self._server, self._recommender, self._number, self._pause = server, recommender, number, pause
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(threads)]
        self.asked: list[Asked] = []

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def failures(self) -> list[str]:
        return [one.failure for one in self.asked if one.failure]

    def latencies(self) -> list[float]:
        """Seconds of what was answered, the shortest first."""
        return sorted(one.seconds for one in self.asked if not one.failure)

    def _ask(self) -> None:
        expected = scores(self._number)
        while not self._over.wait(self._pause):
            began, failure = time.monotonic(), ""
            try:
                found = self._server.score(self._recommender, self._number, FEED).tolist()
                failure = "" if found == expected else f"wrong scores: {found}"
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            self.asked.append(Asked(began, time.monotonic() - began, failure))
