"""The reconcile loop alone: the real Runs on the real stores, with an executor whose stages cost nothing.

`transitions`: every run goes from pending to registered, each stage publishing at once: committed transitions a second.
`delay`: all runs stand in a stage that goes on; now and then one publishes: how long until the loop has committed what follows.
"""

from __future__ import annotations

import random
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.report import Row
from services.control.admission import Admissions
from services.control.reconcile import Reconciler
from services.control.runs import Runs
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache
from services.control.worker_loop import Loop
from services.eventlog.days import SqlEventDays
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.stage_outputs import SqlStageOutputs
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RolloutSpec, RunSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Manifest, StageSpec
from shared.datafiles import DataFiles
from shared.domain.rollout import RolloutStatus
from shared.domain.run import Job, RunStatus
from shared.ports import Recommender
from shared.run_factory import new_run

_TICK = 0.2  # as the platform's control loop
_SAMPLES = 60


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Stages:
    """Implements Executor: a started stage has published already, or goes on until it is told to."""

    def __init__(self, artifacts: FsspecArtifacts) -> None:
        self.at_once = True
        self._artifacts = artifacts
        self._specs: dict[str, StageSpec] = {}
        self._ended: set[str] = set()

    def start(self, spec: StageSpec) -> None:
        if spec.attempt not in self._specs:
            self._specs[spec.attempt] = spec
            if self.at_once:
                self.end(spec.attempt)

    def end(self, attempt: str) -> None:
        spec, now = self._specs[attempt], datetime.now(UTC)
        self._artifacts.publish(Manifest(stage=spec.stage, run=spec.run, attempt=attempt, started=now, ended=now))
        self._ended.add(attempt)

    def observe(self, attempt: str) -> Job | None:
        if attempt not in self._specs:
            return None
        return Job("succeeded" if attempt in self._ended else "running")

    def stop(self, attempt: str) -> None:
        self._ended.add(attempt)

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        return "", offset


class Plane:
    """One control plane over a database, with `count` runs of as many recommenders."""

    def __init__(self, url: str, folder: Path, count: int) -> None:
        self.engine = open_engine(url)
        upgrade(self.engine)
        self.runs = SqlResources(self.engine, "run", RunStatus, RunSpec)
        rollouts = SqlResources(self.engine, "rollout", RolloutStatus, RolloutSpec)
        artifacts = FsspecArtifacts(str(folder))
        self.stages, clock = Stages(artifacts), Clock()
        outputs, registry = SqlStageOutputs(self.engine), SqlRegistry(self.engine)
        bases = StageCache(self.runs, registry, artifacts, outputs, DataFiles(()), "a benchmark")
        snapshots = Snapshots(SqlEventLog(self.engine), SqlEventDays(self.engine), artifacts)
        kind = Runs(rollouts, self.stages, snapshots, clock, (), bases, Admissions(self.runs, clock, count))
        self.reconciler = Reconciler(kind, clock)
        self.ids = [f"r{number:06}" for number in range(count)]
        for id in self.ids:
            now = clock.now()
            recommender = Recommender(f"films-{id}", 1, specified(f"films-{id}"), now, now)
            self.runs.create(new_run(recommender, id, "full", "a benchmark", None, now), "bench")


def transitions(database: str, url: str, count: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        plane = Plane(url, Path(folder), count)
        began, written = time.monotonic(), 0
        while wrote := plane.reconciler.tick():
            written += wrote
        seconds = time.monotonic() - began
        states = {one.status.state for one in plane.runs.list(active=False, limit=count)}
        if states != {"registered"}:
            raise SystemExit(f"runs ended as {states}")
        plane.engine.dispose()
    return [Row(f"{count} runs to the end", f"eyas on {database}", "transitions", "1/s", [written / seconds])]


def delay(database: str, url: str, count: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        plane = Plane(url, Path(folder), count)
        plane.stages.at_once = False
        while plane.reconciler.tick():
            pass
        loop = Loop("control", [plane.reconciler.tick], _TICK)
        loop.start()
        time.sleep(2)
        chance, waited = random.Random(1), []  # noqa: S311
        busy = psutil.Process().cpu_times()
        idle_began = time.monotonic()
        time.sleep(5)
        after = psutil.Process().cpu_times()
        cpu = (after.user + after.system - busy.user - busy.system) / (time.monotonic() - idle_began)
        for id in chance.sample(plane.ids, min(_SAMPLES, count)):
            plane.stages.end(f"{id}-etl-1")
            began = time.monotonic()
            while plane.runs.get(id).status.state == "etl":
                time.sleep(0.005)
            waited.append(time.monotonic() - began)
        loop.stop()
        plane.engine.dispose()
    case, contender = f"{count} runs active", f"eyas on {database}"
    waited.sort()
    return [
        Row(case, contender, "delay of a transition, p50", "ms", [1000 * waited[len(waited) // 2]]),
        Row(case, contender, "delay of a transition, p99", "ms", [1000 * waited[-1]]),
        Row(case, contender, "cores while nothing changes", "", [cpu]),
        Row(case, contender, "resident memory", "MiB", [psutil.Process().memory_info().rss / 2**20]),
    ]


def specified(name: str) -> RecommenderSpec:
    return RecommenderSpec.model_validate(
        {
            "name": name,
            "data": {"interactions": {"uri": "ratings.csv"}, "items": {"uri": "movies.csv", "key": "movieId"}},
            "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
            "gates": [],
            "split": {"refit": False},
        }
    )
