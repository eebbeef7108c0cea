"""The reconcile loop alone: the real Runs on the real stores, with an executor whose stages cost nothing.

`transitions`: every run goes from pending to registered, each stage publishing at once: committed transitions a second.
`delay`: all runs stand in a stage that goes on; now and then one publishes: how long until the loop has committed what follows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.harness import Row, cpu_seconds, latencies, scratch
from benchmarks.rollout_world import recommender_spec
from services.control.admission import Admissions
from services.control.reconcile import Reconciler
from services.control.runs import AllowLists, Runs
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache
from services.control.worker_loop import Loop
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from services.store.installation import id_hash
from services.store.migrate import upgrade
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.stage_outputs import SqlStageOutputs
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RolloutSpec, RunSpec
from shared.contracts.stage import Manifest, StageSpec
from shared.datafiles import DataFiles
from shared.domain.forgetting import UserDigest
from shared.domain.rollout import RolloutStatus
from shared.domain.run import Job, RunStatus
from shared.run_factory import new_run
from shared.testing.fakes import FakeExecutor

_TICK = 0.2  # as the platform's control loop
_SAMPLES = 60


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Stages(FakeExecutor):
    """A started stage has published already, or goes on until `publish`."""

    def __init__(self, artifacts: FsspecArtifacts) -> None:
        super().__init__()
        self.at_once = True
        self._artifacts = artifacts
        self._specs: dict[str, StageSpec] = {}

    def start(self, spec: StageSpec) -> None:
        super().start(spec)
        if self._specs.setdefault(spec.attempt, spec) is spec and self.at_once:
            self.publish(spec.attempt)

    def publish(self, attempt: str) -> None:
        spec, now = self._specs[attempt], datetime.now(UTC)
        self._artifacts.publish(Manifest(stage=spec.stage, run=spec.run, attempt=attempt, started=now, ended=now))
        self.end(attempt, Job("succeeded"))


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
        snapshots = Snapshots(
            SqlEventLog(self.engine),
            SqlEventDays(self.engine),
            SqlEventDeletion(self.engine),
            artifacts,
            id_hash(self.engine),
            SqlForgottenUsers(self.engine, UserDigest(b"")),
        )
        recommenders = SqlRecommenders(self.engine)
        kind = Runs(
            rollouts,
            self.stages,
            snapshots,
            clock,
            AllowLists(()),
            bases,
            Admissions(self.runs, clock, count),
            recommenders,
        )
        self.reconciler = Reconciler(kind, clock)
        self.ids = [f"r{number:06}" for number in range(count)]
        for id in self.ids:
            now = clock.now()
            recommender = recommenders.put(recommender_spec(f"films-{id}", split={"refit": False}), now, "bench").recommender
            self.runs.create(new_run(recommender, id, "full", "a benchmark", None, now), "bench")


def transitions(database: str, url: str, count: int) -> Iterator[Row]:
    with scratch() as folder:
        plane = Plane(url, folder, count)
        began, written = time.monotonic(), 0
        while wrote := plane.reconciler.tick():
            written += wrote
        seconds = time.monotonic() - began
        states = {run.status.state for run in plane.runs.list(active=False, limit=count)}
        if states != {"registered"}:
            raise SystemExit(f"runs ended as {states}")
        plane.engine.dispose()
    yield Row(f"{count} runs to the end", f"eyas on {database}", "transitions", "1/s", [written / seconds])


def delay(database: str, url: str, count: int) -> Iterator[Row]:
    case, contender, own = f"{count} runs active", f"eyas on {database}", psutil.Process()
    with scratch() as folder:
        plane = Plane(url, folder, count)
        plane.stages.at_once = False
        while plane.reconciler.tick():
            pass
        loop = Loop("control", [plane.reconciler.tick], _TICK)
        loop.start()
        time.sleep(2)
        before, began = cpu_seconds([own]), time.monotonic()
        time.sleep(5)
        cores = (cpu_seconds([own]) - before) / (time.monotonic() - began)
        waits = []
        for id in random.Random(1).sample(plane.ids, min(_SAMPLES, count)):  # noqa: S311
            plane.stages.publish(f"{id}-etl-1")
            began = time.monotonic()
            while plane.runs.get(id).status.state == "etl":
                time.sleep(0.005)
            waits.append(time.monotonic() - began)
        loop.stop()
        plane.engine.dispose()
    yield from latencies(case, contender, waits, 50, 99, metric="delay of a transition, {}")
    yield Row(case, contender, "cores while nothing changes", "", [cores])
    yield Row(case, contender, "resident memory", "MiB", [own.memory_info().rss / 2**20])
