"""Small data with planted tastes, the spec that goes with it, and users who click as a test wants it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from pipelines.data.synthetic import World, write_ratings
from tests.servers.platform_process import PlatformProcess

USERS = 400


def write_world(folder: Path, ratings: int = 12_000) -> World:
    world = World.create(USERS, 60, seed=3)
    folder.mkdir(parents=True, exist_ok=True)
    write_ratings(world.ratings(ratings, 1_700_000_000, 1_703_000_000, seed=4), folder / "ratings.parquet")
    world.write_items(folder / "movies.parquet")
    return world


def spec(data: Path, epochs: int = 3, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "eyas/v1",
        "name": "movies",
        "data": {
            "interactions": {"uri": str(data / "ratings.parquet")},
            "items": {"uri": str(data / "movies.parquet"), "key": "movieId"},
        },
        "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres", "separator": "|"}],
        "model": {"params": {"layers": [64, 32], "width": 16}, "train": {"epochs": epochs, "batch_size": 512}},
        "gates": [{"metric": "auc", "min": 0.5}, {"parity": 1e-4}],
        "rollout": {
            "steps": ["20%", "50%"],
            "analysis": {
                "attribution": "500ms",
                "window": "500ms",
                "max_harm": "10%",
                "min_users": 30,
                "min_answers": 30,
                "deadline": "5m",
                "every": "250ms",
                "guardrails": {"latency_p50": "off", "latency_p99": "off"},  # of a machine that runs tests
            },
        },
        **changes,
    }


def quick_spec(data: Path, regularisation: float = 400, **changes: Any) -> dict[str, Any]:
    """The same of the family `ease`: its stages start without a training framework, and train in no time."""
    return spec(data, model={"family": "ease", "params": {"regularisation": regularisation}}, **changes)


class Crowd:
    """Users who ask and click: how likely, a test says by version."""

    def __init__(self, platform: PlatformProcess, likes: Callable[[int], float], seed: int = 5) -> None:
        self._platform = platform
        self._likes = likes
        self._random = random.Random(seed)
        self.variants: dict[int, list[int]] = {}
        self.answers = 0
        self.fallbacks: list[str] = []
        """Of answers that were not ordered by the model."""

    def come(self, count: int = 1) -> None:
        for _ in range(count):
            user = self._random.randint(1, USERS)
            answer = self._platform.post("/v1/recommend/movies", {"user": user, "k": 5})
            self.answers += 1
            if answer["fallback"] is not None:
                self.fallbacks.append(answer["fallback"])
            self.variants.setdefault(user, []).append(answer["version"])
            if self._random.random() < self._likes(answer["version"]):
                item = answer["items"][0]["item"]
                event = {"recommender": "movies", "user": user, "item": item, "value": 5, "request_id": answer["request_id"]}
                self._platform.post("/v1/events", {"events": [event]})


class Visitors:
    """Users who ask without a pause, on a thread."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._platform = platform
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers = 0
        self.newest = 0
        """The version of the last answer."""
        self.failures: list[str] = []

    def __enter__(self) -> Visitors:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._leaving.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._platform.client.base_url, headers=self._platform.client.headers, timeout=20) as client:
            while not self._leaving.wait(0.005):
                answer = client.post("/v1/recommend/movies", json={"user": self.answers % 100 + 1})
                self.answers += 1
                if answer.is_success and answer.json()["fallback"] is None:
                    self.newest = answer.json()["version"]
                else:
                    self.failures.append(answer.text)
