"""Many runs under several control planes at once, on a real database, with stages that are done as soon as they start."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from services.control.admission import Admissions
from services.control.reconcile import Reconciler
from services.control.replica import Replica
from services.control.runs import AllowLists, Runs
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.sql import SqlEventLog
from services.store.engine import open_engine
from services.store.leases import SqlLeases
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.stage_outputs import SqlStageOutputs
from services.store.tables import history, resources, versions
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RolloutSpec, RunSpec
from shared.contracts.stage import File, Manifest, StageSpec
from shared.domain.entity_ids import IdHash
from shared.domain.errors import Conflict, Unavailable
from shared.domain.rollout import RolloutStatus
from shared.domain.run import STAGES, Job, RunStatus
from shared.ports import RunRecord
from shared.run_factory import new_run
from shared.testing.fakes import FakeExecutor
from tests.support.forgotten import forgotten_users
from tests.support.simulated_platform import METRICS, Data, spec

SCALE = float(os.environ.get("EYAS_SCALE", "0.04"))
"""1: as many rows as is claimed; less for every day."""


def scaled(count: int) -> int:
    return max(8, int(count * SCALE))


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Rows(SqlResources[RunStatus, RunSpec]):
    """Counts the races that were lost."""

    conflicts = 0

    def _advance(self, connection: Connection, record: RunRecord, **values: Any) -> None:
        try:
            super()._advance(connection, record, **values)
        except Conflict:
            self.conflicts += 1
            raise


class Instant(FakeExecutor):
    """Publishes a stage when it is started."""

    def __init__(self, artifacts: FsspecArtifacts, file: File) -> None:
        super().__init__()
        self._artifacts = artifacts
        self._file = file
        self._lock = threading.Lock()

    def start(self, spec: StageSpec) -> None:
        with self._lock:
            if self.observe(spec.attempt) is not None:
                return
            super().start(spec)
            now = Clock().now()
            self._artifacts.publish(
                Manifest(
                    stage=spec.stage,
                    run=spec.run,
                    attempt=spec.attempt,
                    started=now,
                    ended=now,
                    files={f"{spec.stage}.bin": self._file},
                    metrics=dict(METRICS.get(spec.stage, {})),
                )
            )
            self.end(spec.attempt, Job("succeeded"))


class Fleet:
    """`size` control planes; `tick(n)` is one pass of one of them."""

    def __init__(self, folder: Path, url: str, size: int, term: timedelta | None = None) -> None:
        """With a term they are replicas, that claim rows; without one each goes over all of them."""
        self._engines = [open_engine(url) for _ in range(size + 1)]
        self.faults: Counter[str] = Counter()
        artifacts = FsspecArtifacts(str(folder / "artifacts"))
        (folder / "output").write_text("the same for all")
        self.executor = Instant(artifacts, artifacts.put(folder / "output"))
        self.rows: list[Rows] = []
        self.replicas: list[Replica] = []
        self._reconcilers: list[Reconciler[Any, Any, Any]] = []
        for number, engine in enumerate(self._engines[1:]):
            rows = Rows(engine, "run", RunStatus, RunSpec)
            bases = StageCache(rows, SqlRegistry(engine), artifacts, SqlStageOutputs(engine), Data(), "1.0 test")
            turns = Admissions(rows, Clock(), limit=1_000_000)
            rollouts = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
            events = (SqlEventLog(engine), SqlEventDays(engine), SqlEventDeletion(engine))
            snapshots = Snapshots(*events, artifacts, IdHash(b"test"), forgotten_users(engine))
            runs = Runs(rollouts, self.executor, snapshots, Clock(), AllowLists(("/data",)), bases, turns, SqlRecommenders(engine))
            replica = None if term is None else Replica(f"replica-{number}", SqlLeases(engine), Clock(), term)
            self.rows.append(rows)
            self.replicas += [replica] if replica else []
            self._reconcilers.append(Reconciler(runs, Clock(), replica))

    def launch(self, count: int) -> None:
        """One run of each of so many recommenders: nobody waits for another one's turn."""
        recommenders = SqlRecommenders(self._engines[0])
        store = SqlResources(self._engines[0], "run", RunStatus, RunSpec)
        for n in range(count):
            now = Clock().now()
            made = recommenders.put(spec(name=f"films-{n}"), now, "ada").recommender
            store.create(new_run(made, f"r{n}", "full", "a test", None, now), "ada")

    def tick(self, number: int) -> None:
        self._said(self._reconcilers[number].tick)

    def beat(self, number: int) -> None:
        self._said(self.replicas[number].beat)

    def _said(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Unavailable as error:
            self.faults[str(error).partition(" (")[0].partition(": ")[2]] += 1

    def unfinished(self) -> int:
        try:
            return len(SqlResources(self._engines[0], "run", RunStatus, RunSpec).queued())
        except Unavailable:
            return -1

    def check(self, count: int) -> None:
        """Everything ended legally, once, and the history tells it as the rows do."""
        with self._engines[0].connect() as connection:
            states = {row.id: row.state for row in connection.execute(select(resources).where(resources.c.kind == "run"))}
            told: dict[str, list[tuple[str, str]]] = {id: [] for id in states}
            for row in connection.execute(select(history).where(history.c.kind == "run").order_by(history.c.seq)):
                told[row.id].append((row.source, row.target))
            registered = Counter(row.run for row in connection.execute(select(versions.c.run)))
        path = ["", "pending", *STAGES, "registered"]
        assert set(states.values()) == {"registered"}
        assert all(one == list(itertools.pairwise(path)) for one in told.values())
        assert registered == Counter(dict.fromkeys(states, 1))
        started = Counter(one.attempt for one in self.executor.started)
        assert started == Counter({f"{id}-{stage}-1": 1 for id in states for stage in STAGES})
        assert len(states) == count

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()
