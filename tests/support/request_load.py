"""A steady load of requests on a platform, which remembers what the platform has acknowledged."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import httpx

from tests.servers.platform_process import PlatformProcess

RATE = 50


class Load:
    """Sends `RATE` requests a second: half of them ask for items, the other half send an event. `acknowledged`: when the platform accepted
    each event, by the event's id."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._client = httpx.Client(base_url=platform.client.base_url, headers=platform.client.headers, timeout=20)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.acknowledged: dict[str, datetime] = {}
        self.failures: list[str] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._thread.join()
        self._client.close()

    def _send(self) -> None:
        number = 0
        while not self._ends.wait(2 / RATE):
            number += 1
            answer = self._client.post("/v1/recommend/movies", json={"user": number % 300 + 1, "k": 5})
            if not answer.is_success:
                self.failures.append(answer.text)
                continue
            event = {
                "id": f"e{number}",
                "recommender": "movies",
                "user": number % 300 + 1,
                "item": answer.json()["items"][number % 5]["item"],
                "value": 5,
                "request_id": answer.json()["request_id"],
            }
            stored = self._client.post("/v1/events", json={"events": [event]})
            if stored.is_success:
                self.acknowledged[f"e{number}"] = datetime.now(UTC)
            else:
                self.failures.append(stored.text)


def is_answered(platform: PlatformProcess) -> bool:
    """Returns whether the model answers. The request is a trial, which no KPI counts."""
    answer = platform.client.post("/v1/recommend/movies", json={"user": 1}, params={"trial": "true"})
    return answer.is_success and answer.json()["fallback"] is None
