"""Users at a steady rate over HTTP, and what became of each request.

The rate is kept whatever the answers take (an open loop), so a pause of the server shows as latency and not as fewer requests.
"""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from shared.testing.threads import Threads

_BATCH = 0.2


@dataclass(frozen=True)
class Asked:
    due: float
    """When it was to be sent, on the monotonic clock: latency counts from here."""
    seconds: float
    version: int
    variant: str
    failure: str = ""


class Load(Threads):
    """A context: `rate` requests a second by `threads` connections. `likes` says how likely a user likes an answer of a version."""

    def __init__(self, url: str, token: str, name: str, users: int, rate: float, likes: Callable[[int], float], threads: int = 32) -> None:
        super().__init__(*(functools.partial(self._ask, seed) for seed in range(threads)), self._tell)
        self._address, self._headers = urlsplit(url), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._name, self._users, self._rate, self._likes = name, users, rate, likes
        self._tickets = itertools.count()
        self._liked: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.asked: list[Asked] = []
        self.untold = 0
        """Likes that the platform didn't take."""

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return super().__enter__()

    @property
    def failures(self) -> Sequence[Asked]:
        return [one for one in self.asked if one.failure]

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        door = self._door()
        while not self.over.is_set():
            due = self._began + next(self._tickets) / self._rate
            if self.over.wait(max(0.0, due - time.monotonic())):
                return
            user = chance.randrange(self._users)
            version, variant, failure = 0, "", ""
            try:
                status, found = _post(door, f"/v1/recommend/{self._name}", {"user": user, "k": 5}, self._headers)
                if status != 200 or found["fallback"] is not None:
                    failure = f"{status}: {found.get('fallback') or found.get('detail') or found}"
                version, variant = found.get("version", 0), found.get("variant", "")
                if not failure and chance.random() < self._likes(version):
                    like = {"recommender": self._name, "user": user, "item": found["items"][0]["item"], "value": 5}
                    with self._lock:
                        self._liked.append({**like, "request_id": found["request_id"]})
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = f"{type(error).__name__}: {error}"
                door.close()
                door = self._door()
            self.asked.append(Asked(due, time.monotonic() - due, version, variant, failure))

    def _tell(self) -> None:
        door = self._door()
        while not self.over.wait(_BATCH):
            with self._lock:
                batch, self._liked = self._liked[:500], self._liked[500:]
            if not batch:
                continue
            try:
                status, _ = _post(door, "/v1/events", {"events": batch}, self._headers)
            except (OSError, http.client.HTTPException, ValueError):
                status = 0
                door.close()
                door = self._door()
            self.untold += 0 if 200 <= status < 300 else len(batch)

    def _door(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=30)


def _post(door: http.client.HTTPConnection, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    door.request("POST", path, json.dumps(body), headers)
    answer = door.getresponse()
    return answer.status, json.loads(answer.read() or b"{}")
