"""One arm of the closed loop: a platform, its users and a month of their days, and what came of it."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.loop_platform import START, Platform
from benchmarks.loop_users import Crowd, Scene, crowds
from pipelines.data.synthetic import write_ratings
from services.gateway.gateway import Question
from shared.contracts.events import Interaction
from shared.domain import run as runs
from shared.run_factory import rollout_id

NAME = "films"
FOLLOWED = "triggers, followed up"
NEVER = "never"
ARMS = (NEVER, "triggers", FOLLOWED, "daily")
STEP = timedelta(minutes=20)
_BEFORE = timedelta(days=60)
"""Of what the first version learns from."""
_AT_ONCE = 32


def specified(scene: Scene, data: Path) -> dict[str, Any]:
    """What the first version is made from."""
    return {
        "apiVersion": "eyas/v1",
        "name": NAME,
        "data": {
            "interactions": {"uri": str(data.absolute() / "ratings.parquet"), "also": "events"},
            "items": {"uri": str(data.absolute() / "films.parquet"), "key": "movieId"},
        },
        "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres", "separator": "|"}],
        "split": {"by": "time", "test": "10%"},
        "model": {
            "family": "mlp",
            "params": {"layers": [64, 64], "width": 32, "negatives": 3},
            "train": {"epochs": 8, "batch_size": 1024, "seed": scene.seed},
        },
        "gates": [{"metric": "hr@10", "better_than": "popularity", "confidence": "50%", "min_users": 1}, {"parity": 1e-4}],
        "serve": {"filter": [{"available": True}]},
        "rollout": {
            "steps": ["50%"],
            "analysis": {
                "attribution": "10m",
                "window": "2h",
                "max_harm": "20%",
                "min_users": 200,
                "every": "10m",
                "guardrails": {"latency_p50": None, "latency_p99": None},
            },
        },
    }


def watching(spec: Mapping[str, Any], arm: str) -> dict[str, Any]:
    """What it is from then on: the newest feedback alone is learned from, and when, the arm says."""
    found: dict[str, Any] = json.loads(json.dumps(spec))
    found["data"]["interactions"]["since"] = "2d"
    warm = {"mode": "warm", "cooldown": "3h"}
    if arm.startswith("triggers"):
        on = [{"drift": {}}, {"kpi": {"hit_rate": "-10%", "window": "1d", "season": "none", "mode": "warm"}}]
        found["retrain"] = warm | {"on": on} | ({"follow_up": ["12h", "2d"]} if arm == FOLLOWED else {})
    elif arm == "daily":
        found["retrain"] = warm | {"schedule": "0 3 * * *"}
    return found


@dataclass(frozen=True)
class Day:
    """What an arm earned on one day, by the users' own count."""

    day: int
    answers: int
    hits: int
    low: float
    high: float
    promised: float
    """The hit rate that could be expected of what was shown: without the luck of the clicks."""
    oracle: float
    fallbacks: int

    @property
    def rate(self) -> float:
        return self.hits / self.answers


@dataclass(frozen=True)
class Retraining:
    """One run that a trigger or the schedule began, in days of the simulated month."""

    at: float
    trigger: str
    why: str
    mode: str
    run: str
    version: int | None
    rollout: str
    serves: float | None
    """When its version was promoted."""
    cpu: float
    """Seconds of processor time that its stages took."""


@dataclass(frozen=True)
class Told:
    seed: int
    arm: str
    days: tuple[Day, ...]
    retrainings: tuple[Retraining, ...]
    first_cpu: float
    """Of the first version's stages."""
    alerting: tuple[str, ...]
    cpu: float
    wall: float


def live(scene: Scene, arm: str, folder: Path, say: Callable[[str], None]) -> Told:
    """One arm, from the first version to the last day."""
    began, cpu = time.monotonic(), time.process_time()
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "data"
    _write(scene, data)
    with ExitStack() as undo:
        platform = Platform(folder / "home", data, scene.seed, undo)
        spec = specified(scene, data)
        platform.apply(spec)
        platform.start_run(NAME, "first")
        _until(platform, START + timedelta(hours=6), lambda: platform.routes.get(NAME) is not None)
        zero = START + timedelta(days=1)
        platform.clock.jump_to(zero)
        platform.apply(watching(spec, arm))
        days = []
        for day, crowd in crowds(scene):
            days.append(_day(platform, scene, crowd, day, zero))
            one = days[-1]
            say(f"seed {scene.seed} {arm:8} day {day:2}: {one.rate:.3f} of {one.oracle:.3f}, {time.monotonic() - began:.0f} s")
        retrainings = tuple(_retrainings(platform, zero))
        alerts = tuple(one.reason for one in platform.retrainers.history(NAME) if one.target == "alerting")
        own = time.process_time() - cpu
        return Told(scene.seed, arm, tuple(days), retrainings, platform.stages.seconds["first"], alerts, own, time.monotonic() - began)


def _day(platform: Platform, scene: Scene, crowd: Crowd, day: int, zero: datetime) -> Day:
    hits = fallbacks = 0
    promised = 0.0
    steps = round(timedelta(days=1) / STEP)
    edges = [scene.visits * step // steps for step in range(steps + 1)]
    for step in range(steps):
        platform.clock.jump_to(zero + day * timedelta(days=1) + step * STEP)
        for first in range(edges[step], edges[step + 1], _AT_ONCE):
            visits = range(first, min(first + _AT_ONCE, edges[step + 1]))
            asked = [platform.gateway.submit(Question(NAME, crowd.users[visit], scene.shown)) for visit in visits]
            done: list[Interaction] = []
            for visit, answer in zip(visits, [one.result() for one in asked], strict=True):
                shown = [item for item, _ in answer.items]
                clicked, picked, user = crowd.clicked(visit, shown), crowd.picked(visit), crowd.users[visit]
                hits, fallbacks = hits + bool(clicked), fallbacks + (answer.fallback is not None)
                promised += crowd.promise(visit, shown)
                done += [Interaction(recommender=NAME, user=user, item=item, request_id=answer.request_id) for item in clicked]
                rated = zip(picked.items.tolist(), picked.stars.tolist(), strict=True)
                done += [Interaction(recommender=NAME, user=user, item=item, value=stars) for item, stars in rated]
            platform.gateway.record(done)
        platform.settle()
    low, high = interval(hits, scene.visits)
    return Day(day, scene.visits, hits, low, high, promised / scene.visits, crowd.oracle(), fallbacks)


def _until(platform: Platform, end: datetime, there: Callable[[], bool]) -> None:
    while not there():
        if platform.clock.now() > end:
            said = [f"{one.id}: {one.status.state}, {one.status.reason}" for one in platform.runs.list(NAME)]
            raise RuntimeError(f"the first version doesn't serve: {said}")
        platform.settle()
        platform.clock.jump(timedelta(minutes=1))


def _write(scene: Scene, data: Path) -> None:
    world = scene.worlds()[0]
    data.mkdir(parents=True)
    world.write_items(data / "films.parquet")
    start, end = (round((START - before).timestamp()) for before in (_BEFORE, timedelta(0)))
    write_ratings(world.ratings(scene.ratings, start, end, scene.seed), data / "ratings.parquet")


def _retrainings(platform: Platform, zero: datetime) -> list[Retraining]:
    def when(moment: datetime) -> float:
        return round((moment - zero) / timedelta(days=1), 3)

    found = []
    for run in reversed(platform.runs.list(NAME, limit=1000)):
        if run.id == "first":
            continue
        status, version, rollout, serves = run.status, platform.registry.of_run(run.id), "", None
        if runs.MACHINE.terminal(status.state) and version is not None:
            last = platform.rollouts.latest(rollout_id(run.id), 1)[0]
            rollout, serves = f"{last.target}: {last.reason}", when(last.at) if last.target == "promoted" else None
        ended = rollout or f"{status.state}: {status.reason}"
        number = version.number if version else None
        why, cpu = run.spec.cause, platform.stages.seconds.get(run.id, 0.0)
        trigger = _TRIGGERS[re.split("[: ]", why)[0]]
        found.append(Retraining(when(run.created_at), trigger, why, run.spec.mode, run.id, number, ended, serves, cpu))
    return found


_TRIGGERS = {"hit": "kpi", "drift": "drift", "new": "drift", "missing": "drift", "schedule": "schedule", "follow-up": "follow_up"}
"""By the first word of why a run was started."""


def interval(hits: int, answers: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's, 95%."""
    rate, spread = hits / answers, z * z / answers
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / answers + spread / (4 * answers))
    return middle - half, middle + half
