"""A whole platform in one process under a clock of its own: what takes a month happens in minutes.

Real are the stores on SQLite, the gateway, the event log, the monitor, the retrainer, runs and rollouts with their reconcilers,
the stages of a run (`verify` with its own Triton among them) and the artifacts. Simulated are the clock; that a stage takes `STAGE`
of it; and the model server: ONNX Runtime scores `model.onnx`, the file that a Triton would serve, in this process.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from services.control.admission import Admissions
from services.control.model_lineage import ModelLineages
from services.control.placement import Placement, warmth
from services.control.reconcile import Reconciler
from services.control.retrainers import Retrainers
from services.control.rollouts import Rollouts, Sources
from services.control.runs import AllowLists, Runs
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.drift_samples import SqlDriftSamples
from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.gateway import Gateway
from services.gateway.gateway import Stores
from services.index.opening import OpenIndexes
from services.monitor.retrain_signals import Monitor
from services.sources import code_version
from services.store.catalogue import SqlCatalogue
from services.store.engine import open_engine, sqlite_url
from services.store.installation import id_hash
from services.store.migrate import upgrade
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.shadow_totals import SqlShadowTotals
from services.store.stage_outputs import SqlStageOutputs
from services.wiring.parts import STAGES
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RetrainerSpec, RolloutSpec, RunSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.contracts.strict import read
from shared.datafiles import DataFiles
from shared.domain.errors import Unavailable
from shared.domain.forgetting import UserDigest
from shared.domain.rollout import RolloutStatus
from shared.domain.run import Job, RunStatus
from shared.domain.triggers import RetrainerStatus
from shared.ports import ArtifactStore, ServedUnit, ServerInfo
from shared.run_factory import new_run
from shared.serving.signature import Signature
from shared.serving.tensors import tensors

START = datetime(2026, 1, 1, tzinfo=UTC)
STAGE = timedelta(minutes=20)
_BREATH = timedelta(milliseconds=300)
_MOST_PASSES = 50

Array = np.ndarray[Any, Any]


class Clock:
    def __init__(self) -> None:
        self._now = START

    def now(self) -> datetime:
        self._now += timedelta(microseconds=1)
        return self._now

    def jump(self, span: timedelta) -> None:
        self._now += span

    def jump_to(self, moment: datetime) -> None:
        self._now = max(self._now, moment)


class OnnxServer:
    """Implements ModelServer: ONNX Runtime in this process, on one thread as in Triton's instance."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._sessions: dict[tuple[str, int], onnxruntime.InferenceSession] = {}
        self._signatures: dict[tuple[str, int], Signature] = {}
        self._answers: Counter[tuple[str, int]] = Counter()
        self._texts: dict[int, tuple[Array, Array]] = {}

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        wanted = {(unit.recommender, unit.number): unit for unit in units}
        for key in [key for key in self._sessions if key[0] == recommender and key not in wanted]:
            del self._sessions[key]
            self._texts.clear()
        for key, unit in wanted.items():
            if key not in self._sessions:
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                model = self._artifacts.read(unit.files["model.onnx"])
                self._sessions[key] = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
                self._signatures[key] = read(Signature, json.loads(self._artifacts.read(unit.files["signature.json"])), "signature.json")
        return {}

    def answering(self, recommender: str) -> frozenset[int]:
        return frozenset(number for name, number in self._sessions if name == recommender)

    def score(self, recommender: str, number: int, feed: Mapping[str, Array], patience: float | None = None) -> Array:
        session = self._sessions.get((recommender, number))
        if session is None:
            raise Unavailable(f"{recommender} version {number} is not placed")
        self._answers[recommender, number] += 1
        inputs = {name: self._as_objects(array) for name, array in tensors(self._signatures[recommender, number], feed).items()}
        (scores,) = session.run(["score"], inputs)
        return np.asarray(scores)

    def successes(self) -> Mapping[tuple[str, int], int]:
        return dict(self._answers)

    def info(self) -> ServerInfo:
        return ServerInfo(onnxruntime.__version__, ())

    def _as_objects(self, column: Array) -> Array:
        """Texts as ONNX Runtime takes them. The catalogue's columns are the same arrays in every call; each is kept beside its copy,
        so that no other takes its identity."""
        if column.dtype.kind != "U":
            return column
        if id(column) not in self._texts:
            self._texts[id(column)] = (column, column.astype(object))
        return self._texts[id(column)][1]


class Stages:
    """Implements Executor: a stage's own `main`, in this process (libraries are loaded once), `verify` in one of its own."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._active: dict[str, tuple[StageSpec, datetime]] = {}
        self._ended: dict[str, Job] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """Of processor time, by run; `verify`'s own Triton included."""

    def start(self, spec: StageSpec) -> None:
        if spec.attempt not in self._ended:
            self._active.setdefault(spec.attempt, (spec, self._clock.now()))

    def observe(self, attempt: str) -> Job | None:
        if attempt in self._active:
            spec, began = self._active[attempt]
            if self._clock.now() < began + STAGE:
                return Job("running")
            del self._active[attempt]
            self._ended[attempt] = self._run(spec)
        return self._ended.get(attempt)

    def stop(self, attempt: str) -> None:
        if self._active.pop(attempt, None):
            self._ended[attempt] = Job("failed", "it was stopped", "crash")

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        path = self._root / attempt / "log.txt"
        text = path.read_text(errors="replace")[offset:] if path.is_file() else ""
        return text, offset + len(text)

    def _run(self, spec: StageSpec) -> Job:
        folder = self._root / spec.attempt
        folder.mkdir(parents=True)
        path = folder / "spec.json"
        path.write_text(spec.model_dump_json(by_alias=True))
        began = _processor_time()
        with (folder / "log.txt").open("w") as stream:
            code = (_in_process if spec.stage == "verify" else _in_this_process)(STAGES[spec.stage], path, stream)
        self.seconds[spec.run] += _processor_time() - began
        return Job("succeeded") if code == 0 else Job("failed", f"exit code {code}, see {folder / 'log.txt'}", "crash")


def _in_this_process(module: str, spec: Path, stream: Any) -> int:
    before = sys.argv
    sys.argv = [module, "--spec", str(spec)]
    try:
        with redirect_stdout(stream):
            runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def _in_process(module: str, spec: Path, stream: Any) -> int:
    command = [sys.executable, "-P", "-m", module, "--spec", str(spec)]
    return subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False, timeout=300).returncode  # noqa: S603


def _processor_time() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Platform:
    """Without its loops: who drives it says when a pass is due."""

    def __init__(self, home: Path, data: Path, seed: int, undo: ExitStack) -> None:
        home.mkdir(parents=True)
        self.clock = clock = Clock()
        engine = open_engine(sqlite_url(home / "eyas.db"))
        undo.callback(engine.dispose)
        upgrade(engine)
        self.recommenders, self.registry, self.routes = SqlRecommenders(engine), SqlRegistry(engine), SqlRoutes(engine)
        self.runs: SqlResources[RunStatus, RunSpec] = SqlResources(engine, "run", RunStatus, RunSpec)
        self.rollouts: SqlResources[RolloutStatus, RolloutSpec] = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
        self.retrainers: SqlResources[RetrainerStatus, RetrainerSpec] = SqlResources(engine, "retrainer", RetrainerStatus, RetrainerSpec)
        artifacts, events, mirrors = FsspecArtifacts(str(home / "artifacts")), SqlEventLog(engine), SqlShadowTotals(engine)
        server, self.stages, roots = OnnxServer(artifacts), Stages(home / "work", clock), (str(data.absolute()),)
        stores = Stores(
            self.routes, self.registry, artifacts, self.recommenders, events, mirrors, SqlCatalogue(engine), OpenIndexes(), id_hash(engine)
        )
        self.gateway = Gateway(stores, server, clock, "bench", random.Random(seed).random)  # noqa: S311
        undo.callback(self.gateway.close)
        self.monitor = Monitor(self.recommenders, self.routes, self.registry, events, SqlDriftSamples(engine), artifacts, clock)
        self._placement = Placement(self.routes, self.rollouts, self.registry, server, clock, warmth(self.recommenders))
        bases = StageCache(self.runs, self.registry, artifacts, SqlStageOutputs(engine), DataFiles(roots), code_version())
        forgotten = SqlForgottenUsers(engine, UserDigest(b""))
        snapshots = Snapshots(events, SqlEventDays(engine), SqlEventDeletion(engine), artifacts, id_hash(engine), forgotten)
        runs = Runs(
            self.rollouts, self.stages, snapshots, clock, AllowLists(roots), bases, Admissions(self.runs, clock, 1), self.recommenders
        )
        kind = Rollouts(self.rollouts, self.routes, self.registry, server, Sources(SqlKpis(engine), mirrors), self._placement, clock)
        self._retrain = Retrainers(
            self.retrainers,
            self.runs,
            self.rollouts,
            self.recommenders,
            self.routes,
            self.monitor,
            ModelLineages(self.registry, self.runs, self.routes, forgotten),
            clock,
        )
        self._ticks = [Reconciler(kind, clock).tick, Reconciler(self._retrain, clock).tick, Reconciler(runs, clock).tick]

    def apply(self, spec: Mapping[str, Any]) -> None:
        self.recommenders.put(read(RecommenderSpec, json.loads(json.dumps(spec)), "the benchmark's spec"), self.clock.now(), "bench")

    def start_run(self, name: str, id: str) -> None:
        self.runs.create(new_run(self.recommenders.get(name), id, "full", "the first one", None, self.clock.now()), "bench")

    def settle(self) -> None:
        """Passes until nothing is written any more."""
        for _ in range(_MOST_PASSES):
            self.gateway.refresh()
            self._retrain.ensure()
            written = sum(tick() for tick in self._ticks)
            self._placement.tick()
            if not written:
                return
            self.clock.jump(_BREATH)
        raise RuntimeError(f"after {_MOST_PASSES} passes something is still being written: {time.ctime()}")
