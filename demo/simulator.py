"""Simulated users: they request recommendations, click by their planted preferences, and rate other items on their own.

Each user visits once per round, in random order, at a bounded rate. Clicks carry the request id and count as hits. Organic ratings,
good and bad, show the event log preferences that no recommendation influenced. Failed requests are counted with reasons, not retried."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import numpy as np

from demo.client import ApiError, Json
from demo.counting import Tally
from pipelines.data.synthetic import Ints, World

FLUSH_EVERY = 0.1
MAX_EVENTS = 500


class Platform(Protocol):
    """Client methods that the simulator needs."""

    def recommend(self, name: str, user: int, k: int = 10) -> Json: ...

    def send(self, events: list[Json]) -> Json: ...


@dataclass(frozen=True)
class Traffic:
    """Load: visits per second, threads, organic ratings per visit."""

    rate: float = 120.0
    threads: int = 4
    organic: int = 2
    seed: int = 1


class Simulator:
    def __init__(self, platform: Platform, recommender: str, world: World, traffic: Traffic, tally: Tally) -> None:
        self._platform = platform
        self._recommender = recommender
        self._traffic = traffic
        self.tally = tally
        self.world = world
        """World whose preferences the users follow; can be replaced at any time."""
        self._users = _Rounds(world.user_ids, traffic.seed)
        self._outbox: deque[Json] = deque()
        self._pace = _Pace(traffic.rate)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        works: list[Callable[[], None]] = [lambda seed=n: self._visit_on(seed) for n in range(self._traffic.threads)]  # type: ignore[misc]
        self._threads = [threading.Thread(target=work, daemon=True) for work in (*works, self._report_on)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finishes the current visits and sends all events."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads = []
        while self._outbox:
            self.flush()

    def visit(self, user: int, rng: np.random.Generator) -> None:
        """Simulates a visit: an answer, clicks, and organic ratings."""
        try:
            answer = self._platform.recommend(self._recommender, user)
        except ApiError as error:
            self.tally.failure(str(error))
            return
        world = self.world
        shown = [int(entry["item"]) for entry in answer["items"]]
        clicked = [item for item, liked in zip(shown, rng.random(len(shown)) < world.probability(user, shown), strict=True) if liked]
        self.tally.answer(int(answer["version"]), str(answer["variant"]), bool(clicked))
        self._outbox.extend(self._event(user, item, request_id=answer["request_id"]) for item in clicked)
        picked, stars = world.organic(user, self._traffic.organic, rng)
        self._outbox.extend(self._event(user, item, value=value) for item, value in zip(picked.tolist(), stars.tolist(), strict=True))

    def flush(self) -> None:
        """Sends at most one batch of waiting events."""
        batch = [self._outbox.popleft() for _ in range(min(len(self._outbox), MAX_EVENTS))]
        if not batch:
            return
        try:
            self._platform.send(batch)
        except ApiError as error:
            self.tally.failure(str(error))

    def _event(self, user: int, item: int, **more: object) -> Json:
        return {"recommender": self._recommender, "user": user, "item": item, "at": datetime.now(UTC).isoformat(), **more}

    def _visit_on(self, seed: int) -> None:
        rng = np.random.default_rng([self._traffic.seed, seed, 4])
        while not self._stop.is_set():
            if self._stop.wait(self._pace.wait()):
                return
            self.visit(self._users.next(), rng)

    def _report_on(self) -> None:
        while not self._stop.wait(FLUSH_EVERY):
            self.flush()


class _Rounds:
    """Users in rounds: each user once per round, in random order."""

    def __init__(self, users: Ints, seed: int) -> None:
        self._users, self._rng, self._lock = users, np.random.default_rng([seed, 5]), threading.Lock()
        self._left: list[int] = []

    def next(self) -> int:
        with self._lock:
            if not self._left:
                self._left = self._rng.permutation(self._users).tolist()
            return self._left.pop()


class _Pace:
    """Times that are `1 / rate` apart. Delays are not made up for, so a slow platform gets no bursts."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap, self._clock, self._lock = 1 / rate, clock, threading.Lock()
        self._next = clock()

    def wait(self) -> float:
        with self._lock:
            now = self._clock()
            turn = self._next = max(self._next + self._gap, now)
            return turn - now
