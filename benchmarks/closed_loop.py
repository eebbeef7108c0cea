"""The closed loop: 30 simulated days with two shifts of tastes, retrained by the platform's triggers, by a daily schedule, or never.

    python -m benchmarks.closed_loop [--seeds 1,2] [--resume]

Users ask, click and rate; what they do is what a retraining learns from, and what it learned is what they are shown. On day 10 the
fashion changes (genres that everybody liked a little more are liked a little less, and others instead); on day 20 seven tenths of the
users take each other's tastes, so that all of them together like what they liked. `benchmarks/loop_platform.py` says which parts of it are
real and which are simulated; `benchmarks/populations.py` has its users. An arm is a process of its own.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter
from threadpoolctl import threadpool_limits

from benchmarks.harness import Fields, Outcome, Row, benchmark, say
from benchmarks.loop_platform import START, Platform
from benchmarks.populations import Crowd, Scene, crowds
from benchmarks.trials import interval
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
DAY = timedelta(days=1)
LEVELS = (0.8, 0.95)
"""Shares of the former level; the days until they are reached again."""
_BEFORE = timedelta(days=60)
"""Of what the first version learns from."""
_AT_ONCE = 32
_TRIGGERS = {"hit": "kpi", "drift": "drift", "new": "drift", "missing": "drift", "schedule": "schedule", "follow-up": "follow_up"}
"""By the first word of a run's cause."""


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
    """A run that a trigger or the schedule began, in days of the simulated month."""

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
class Month:
    """Result of an arm."""

    seed: int
    arm: str
    days: tuple[Day, ...]
    retrainings: tuple[Retraining, ...]
    first_cpu: float
    """Of the first version's stages."""
    alerting: tuple[str, ...]
    cpu: float
    wall: float


def first_spec(scene: Scene, data: Path) -> dict[str, Any]:
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


def spec_of_arm(spec: Mapping[str, Any], arm: str) -> dict[str, Any]:
    """What a version is made from later: it learns from the newest feedback alone, at the moments of the arm."""
    document: dict[str, Any] = json.loads(json.dumps(spec))
    document["data"]["interactions"]["since"] = "2d"
    warm = {"mode": "warm", "cooldown": "3h"}
    if arm.startswith("triggers"):
        on = [{"drift": {}}, {"kpi": {"hit_rate": "-10%", "window": "1d", "season": "none", "mode": "warm"}}]
        document["retrain"] = warm | {"on": on} | ({"follow_up": ["12h", "2d"]} if arm == FOLLOWED else {})
    elif arm == "daily":
        document["retrain"] = warm | {"schedule": "0 3 * * *"}
    return document


def live(scene: Scene, arm: str, folder: Path) -> Month:
    """One arm, from the first version to the last day."""
    began, cpu = time.monotonic(), time.process_time()
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "data"
    _write(scene, data)
    with ExitStack() as undo:
        platform = Platform(folder / "home", data, scene.seed, undo)
        spec = first_spec(scene, data)
        platform.apply(spec)
        platform.start_run(NAME, "first")
        run_until(platform, START + timedelta(hours=6), lambda: platform.routes.get(NAME) is not None)
        zero = START + DAY
        platform.clock.jump_to(zero)
        platform.apply(spec_of_arm(spec, arm))
        days = []
        for number, crowd in crowds(scene):
            day = _day(platform, scene, crowd, number, zero)
            days.append(day)
            say(f"seed {scene.seed} {arm:8} day {number:2}: {day.rate:.3f} of {day.oracle:.3f}, {time.monotonic() - began:.0f} s")
        retrainings = tuple(_retrainings(platform, zero))
        alerts = tuple(entry.reason for entry in platform.retrainers.history(NAME) if entry.target == "alerting")
        own = time.process_time() - cpu
        return Month(scene.seed, arm, tuple(days), retrainings, platform.stages.seconds["first"], alerts, own, time.monotonic() - began)


def _day(platform: Platform, scene: Scene, crowd: Crowd, day: int, zero: datetime) -> Day:
    hits = fallbacks = 0
    promised = 0.0
    steps = round(DAY / STEP)
    edges = [scene.visits * step // steps for step in range(steps + 1)]
    for step in range(steps):
        platform.clock.jump_to(zero + day * DAY + step * STEP)
        for first in range(edges[step], edges[step + 1], _AT_ONCE):
            visits = range(first, min(first + _AT_ONCE, edges[step + 1]))
            answers = [platform.gateway.submit(Question(NAME, crowd.users[visit], scene.shown)) for visit in visits]
            events: list[Interaction] = []
            for visit, answer in zip(visits, [future.result() for future in answers], strict=True):
                shown = [int(item) for item, _ in answer.items]
                clicked, (items, stars), user = crowd.clicked(visit, shown), crowd.picked(visit), crowd.users[visit]
                hits, fallbacks = hits + bool(clicked), fallbacks + (answer.fallback is not None)
                promised += crowd.promise(visit, shown)
                events += [Interaction(recommender=NAME, user=user, item=item, request_id=answer.request_id) for item in clicked]
                rated = zip(items.tolist(), stars.tolist(), strict=True)
                events += [Interaction(recommender=NAME, user=user, item=item, value=value) for item, value in rated]
            platform.gateway.record(events)
        platform.settle()
    low, high = interval(hits, scene.visits)
    return Day(day, scene.visits, hits, low, high, promised / scene.visits, crowd.oracle(), fallbacks)


def run_until(platform: Platform, end: datetime, condition: Callable[[], bool]) -> None:
    while not condition():
        if platform.clock.now() > end:
            states = [f"{run.id}: {run.status.state}, {run.status.reason}" for run in platform.runs.list(NAME)]
            raise RuntimeError(f"the first version doesn't serve: {states}")
        platform.settle()
        platform.clock.jump(timedelta(minutes=1))


def _write(scene: Scene, data: Path) -> None:
    world = scene.worlds()[0]
    data.mkdir(parents=True)
    world.write_items(data / "films.parquet")
    start, end = (round((START - before).timestamp()) for before in (_BEFORE, timedelta(0)))
    write_ratings(world.ratings(scene.ratings, start, end, scene.seed), data / "ratings.parquet")


def _retrainings(platform: Platform, zero: datetime) -> Iterator[Retraining]:
    def when(moment: datetime) -> float:
        return round((moment - zero) / DAY, 3)

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
        yield Retraining(when(run.created_at), trigger, why, run.spec.mode, run.id, number, ended, serves, cpu)


def phases(month: Month, scene: Scene) -> list[tuple[float, float]]:
    """Mean hit rate, and that of its last three days, of each phase."""
    by_phase = [[day for day in month.days if scene.phase(day.day) == number] for number in range(3)]
    return [(_mean(days), _mean(days[-3:])) for days in by_phase]


def recovery(month: Month, scene: Scene, shift: int, level: float) -> int | None:
    """Whole days from a shift until the first day whose hit rate is `level` or more; None: none before the next shift, or the end."""
    phase = [day for day in month.days if day.day >= shift and scene.phase(day.day) == scene.phase(shift)]
    return next((day.day - shift for day in phase if day.rate >= level), None)


def _mean(days: Sequence[Day]) -> float:
    return sum(day.hits for day in days) / max(1, sum(day.answers for day in days))


def rows_of(months: Sequence[Month], scene: Scene) -> Iterator[Row]:
    for arm in ARMS:
        if of_arm := [month for month in months if month.arm == arm]:
            yield from _rows_of_arm(arm, of_arm, months, scene)
    oracle = [sum(day.oracle for day in month.days) / len(month.days) for month in months if month.arm == months[0].arm]
    yield Row("all days", "who knows the tastes", "hit rate", "", oracle)


def _rows_of_arm(arm: str, of_arm: Sequence[Month], months: Sequence[Month], scene: Scene) -> Iterator[Row]:
    for number, phase in enumerate(("before", *scene.shifts.values())):
        means = [phases(month, scene)[number] for month in of_arm]
        yield Row(phase, arm, "hit rate", "", [mean for mean, _ in means])
        yield Row(phase, arm, "hit rate, last three days", "", [last for _, last in means])
    for shift, phase in scene.shifts.items():
        for share in LEVELS:
            days = [recovery(month, scene, shift, share * former(months, scene, month)) for month in of_arm]
            reached, name = [day for day in days if day is not None], f"{share:.0%} of the former level"
            yield Row(phase, arm, f"{name}: never reached", f"of {len(days)}", [len(days) - len(reached)])
            if reached:
                yield Row(phase, arm, f"{name}: reached after", "days", reached)
    retrainings = [month.retrainings for month in of_arm]
    yield Row("all days", arm, "retrainings", "", [len(runs) for runs in retrainings])
    yield Row("all days", arm, "of them promoted", "", [sum(run.serves is not None for run in runs) for runs in retrainings])
    yield Row("all days", arm, "processor time of retrainings", "min", [sum(run.cpu for run in runs) / 60 for runs in retrainings])
    yield Row("all days", arm, "processor time of it all", "min", [month.cpu / 60 for month in of_arm])


def former(months: Sequence[Month], scene: Scene, arm: Month) -> float:
    """What the first version earned before any shift; without an arm that keeps it, what this arm earned then."""
    never = [month for month in months if month.seed == arm.seed and month.arm == NEVER]
    return phases((never or [arm])[0], scene)[0][0]


def in_process(scene: Scene, arm: str, home: Path) -> Month:
    """One arm, in a process of its own. Its result stands beside its home, and is read if it is there already."""
    path = home.with_suffix(".json")
    if not path.is_file():
        child = multiprocessing.get_context("spawn").Process(target=_child, args=(scene, arm, home, path))
        child.start()
        child.join()
        if child.exitcode != 0:
            raise RuntimeError(f"the arm '{arm}' of seed {scene.seed} ended with exit code {child.exitcode}; its state is in {home}")
        shutil.rmtree(home)
    return TypeAdapter(Month).validate_json(path.read_text())


def _child(scene: Scene, arm: str, folder: Path, to: Path) -> None:
    logging.basicConfig(level=logging.ERROR)
    threadpool_limits(1, "blas")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    to.write_text(json.dumps(asdict(live(scene, arm, folder)), indent=1))


@benchmark("closed-loop")
def closed_loop(
    seeds: Annotated[list[int], "of the world, its users and their luck"] = [1, 2],  # noqa: B006  never changed
    arms: Annotated[str, "with ';' between them"] = ";".join(ARMS),
    folder: Annotated[Path, "for the result of each arm"] = Path("var/bench/closed-loop"),
    resume: Annotated[bool, "continue after an interruption: an arm with a result isn't simulated again"] = False,
) -> Iterator[Outcome]:
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    lives = [(seed, arm) for seed in seeds for arm in arms.split(";")]
    months = [in_process(Scene(seed=seed), arm, folder / f"{seed}-{ARMS.index(arm)}") for seed, arm in lives]
    scene = Scene(seed=months[0].seed)
    yield Fields(scene=asdict(scene), runs=[asdict(month) for month in months])
    yield from rows_of(months, scene)


if __name__ == "__main__":
    closed_loop()
