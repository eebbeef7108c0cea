"""Tastes that move by the hour: the hit rate of each family with and without the user's recent likes, and what they cost.

    python -m benchmarks.fresh_behaviour [--seeds 1 2 3] [--families ease itemknn mf session mlp]

In each hour a quarter of the users takes another user's tastes. A user asks a few times an hour, clicks, and picks an item unasked; both
count as events. The same version answers two recommenders that differ by `serve.recent` alone, to equal users with equal luck; nothing is
retrained. One user in five is unknown to the version. The platform runs in this process (`benchmarks/loop_platform.py`), so the times are
those of the gateway, the event log and ONNX Runtime, without HTTP and Triton.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.closed_loop import run_until
from benchmarks.harness import Outcome, Row, benchmark, say
from benchmarks.in_process_stages import films
from benchmarks.loop_platform import START, Platform
from pipelines.data.synthetic import World, write_ratings
from shared.contracts.events import Interaction

ARMS = {"on": 50, "off": "off"}
HOUR = timedelta(hours=1)
USERS, ITEMS, RATINGS = 300, 800, 20_000
KNOWN_USERS = USERS * 4 // 5
VISITS, SHOWN, ORGANIC = 3, 5, 1
"""Of a user in an hour; items of an answer; items that a user picks unasked in a visit."""
MODELS: dict[str, dict[str, Any]] = {
    "ease": {"family": "ease"},
    "itemknn": {"family": "itemknn"},
    "mf": {"family": "mf"},
    "session": {"family": "session", "params": {"length": 50}, "train": {"epochs": 20}},
    "mlp": {"family": "mlp"},
    "gbm": {"family": "gbm"},
    "two_tower": {"family": "two_tower"},
}
SEQUENCE = {"sequence": {"of": "movieId", "by": "userId", "length": 50, "liked": True}}
READ_SEQUENCES = ("mlp", "gbm", "two_tower")
"""Families that read recent likes with a feature of sequences alone."""


@dataclass
class Arm:
    """Outcomes of one recommender."""

    hits: list[int] = field(default_factory=list)
    """Per answer."""
    new: list[bool] = field(default_factory=list)
    """Whether the answer's user is unknown to the version."""
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0

    def rate(self, new: bool) -> float:
        return float(np.mean([hit for hit, other in zip(self.hits, self.new, strict=True) if other == new]))


def spec(name: str, model: dict[str, Any], data: Path, seed: int, recent: object) -> dict[str, Any]:
    folder, trained = data.absolute(), {**model, "train": {**model.get("train", {}), "seed": seed}}
    features: list[dict[str, Any]] = [{"categorify": ["userId", "movieId"]}]
    features += [SEQUENCE] if model["family"] in READ_SEQUENCES else []
    tables = folder / "ratings.parquet", folder / "films.parquet"
    return films(*tables, name=name, features=features, model=trained, serve={"recent": recent})


def write_world(folder: Path, users: int, items: int, seed: int, known_users: int) -> World:
    """Writes films, and the ratings of the first users in the 60 days before the start; returns the world."""
    folder.mkdir()
    world = World.create(users, items, seed=seed)
    world.write_items(folder / "films.parquet")
    begin, end = (round((START - before).timestamp()) for before in (timedelta(days=60), timedelta(0)))
    write_ratings(world.ratings(RATINGS, begin, end, seed, world.user_ids[:known_users]), folder / "ratings.parquet")
    return world


def moods(world: World, hours: int, random: np.random.Generator) -> Iterator[World]:
    """The world of each hour."""
    tastes = world.tastes
    for _ in range(hours):
        moving = random.random(len(tastes)) < 0.25
        tastes = np.where(moving[:, None], world.tastes[random.permutation(len(tastes))], tastes)
        yield replace(world, tastes=tastes)


def live(platform: Platform, world: World, hours: int, seed: int) -> dict[str, Arm]:
    """All answers of both arms."""
    arms = {name: Arm() for name in ARMS}
    random = np.random.default_rng([seed, 91])
    columns = {int(item): column for column, item in enumerate(world.item_ids)}
    for hour, mood in enumerate(moods(world, hours, random)):
        platform.clock.jump_to(START + timedelta(days=1) + hour * HOUR)
        liking = mood.liking()
        for _ in range(VISITS):
            for user in random.permutation(world.user_ids).tolist():
                luck, picks = random.random(len(columns)), random.integers(2**31)
                for name, arm in arms.items():
                    began, cpu = time.perf_counter(), time.process_time()
                    answer = platform.gateway.recommend(name, user, SHOWN)
                    arm.cpu += time.process_time() - cpu
                    arm.seconds.append(time.perf_counter() - began)
                    clicked = [int(item) for item, _ in answer.items if luck[columns[int(item)]] < liking[user - 1, columns[int(item)]]]
                    arm.hits.append(bool(clicked))
                    arm.new.append(user > KNOWN_USERS)
                    events = [Interaction(recommender=name, user=user, item=item, request_id=answer.request_id) for item in clicked]
                    items, stars = mood.organic(user, ORGANIC, np.random.default_rng(picks))
                    rated = zip(items.tolist(), stars.tolist(), strict=True)
                    events += [Interaction(recommender=name, user=user, item=item, value=value) for item, value in rated]
                    platform.gateway.record(events)
            platform.clock.jump(HOUR / (VISITS + 1))
        say(f"hour {hour + 1} of {hours}: {', '.join(f'{name} {np.mean(arm.hits):.3f}' for name, arm in arms.items())}")
    return arms


def measured(family: str, seed: int, hours: int) -> dict[str, Arm]:
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="fresh-")))
        data = folder / "data"
        world = write_world(data, USERS, ITEMS, seed, KNOWN_USERS)
        platform = Platform(folder / "home", data, seed, undo)
        for name, recent in ARMS.items():
            platform.apply(spec(name, MODELS[family], data, seed, recent))
            platform.start_run(name, f"first-{name}")
        run_until(platform, START + timedelta(hours=20), lambda: None not in map(platform.routes.get, ARMS))
        return live(platform, world, hours, seed)


def rows_of(family: str, of_seeds: Sequence[dict[str, Arm]]) -> Iterator[Row]:
    for new, population in ((False, "known users"), (True, "new users")):
        for name in ARMS:
            yield Row(family, f"recent {name}", f"hit rate, {population}", "", [arms[name].rate(new) for arms in of_seeds])
        ratios = [arms["on"].rate(new) / arms["off"].rate(new) for arms in of_seeds]
        yield Row(family, "on / off", f"hit rate, {population}", "x", ratios)
    for name in ARMS:
        yield Row(family, f"recent {name}", "p50", "ms", [1e3 * float(np.quantile(arms[name].seconds, 0.5)) for arms in of_seeds])
        yield Row(family, f"recent {name}", "p99", "ms", [1e3 * float(np.quantile(arms[name].seconds, 0.99)) for arms in of_seeds])
        yield Row(family, f"recent {name}", "CPU per request", "ms", [1e3 * arms[name].cpu / len(arms[name].hits) for arms in of_seeds])
    yield Row(family, "on / off", "CPU per request", "x", [arms["on"].cpu / arms["off"].cpu for arms in of_seeds])


@benchmark("fresh-behaviour")
def fresh_behaviour(
    seeds: Annotated[Sequence[int], "of the world, its users and their luck"] = (1, 2, 3),
    families: Annotated[Sequence[str], "of the model"] = tuple(MODELS),
    hours: Annotated[int, "simulated hours"] = 12,
) -> Iterator[Outcome]:
    logging.basicConfig(level=logging.ERROR)
    threadpool_limits(1, "blas")
    for family in families:
        of_seeds = []
        for seed in seeds:
            say(f"{family}, seed {seed}")
            of_seeds.append(measured(family, seed, hours))
        yield from rows_of(family, of_seeds)


if __name__ == "__main__":
    fresh_behaviour()
