"""A control plane that leads runs. Its executor is the world's. The mutants of runs are here too."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

import shared.domain.run
from services.control.admission import Admissions
from services.control.reconcile import Reconciler
from services.control.runs import Runs
from services.control.stage_cache import StageCache
from services.eventlog.sql import SqlEventLog
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.stage_outputs import SqlStageOutputs
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RolloutSpec, RunSpec
from shared.contracts.sources import Contents
from shared.contracts.stage import StageSpec
from shared.domain.rollout import RolloutStatus
from shared.domain.run import Job, RunEffect, RunStatus, StartStage
from shared.ports import Record, RunRecord, Version
from tests.crash.matrix.plane import Plane, replica
from tests.crash.matrix.points import AFTER_EFFECT, CALL, SAFEGUARDS, Hasty, Points, Rows
from tests.crash.matrix.wire import Clock, Wire


class Rollouts(SqlResources[Any, Any]):
    """The store of rollouts, of which a run makes one: a call to the world."""

    def __init__(self, engine: Engine, points: Points) -> None:
        super().__init__(engine, "rollout", RolloutStatus, RolloutSpec)
        self._points = points

    def create(self, record: Record[Any, Any], actor: str) -> Record[Any, Any]:
        self._points.reach(CALL)
        made = super().create(record, actor)
        self._points.reach(AFTER_EFFECT)
        return made


class Registry(SqlRegistry):
    def __init__(self, engine: Engine, points: Points) -> None:
        super().__init__(engine)
        self._points = points

    def register(self, version: Version) -> Version:
        self._points.reach(CALL)
        made = super().register(version)
        self._points.reach(AFTER_EFFECT)
        return made


class WorldExecutor:
    """Implements Executor: jobs are the world's."""

    def __init__(self, wire: Wire, points: Points, blindly: bool = False) -> None:
        self._wire = wire
        self._points = points
        self._blindly = blindly

    def start(self, spec: StageSpec) -> None:
        self._points.reach(CALL)
        self._wire.ask(call="start", name=spec.attempt, run=spec.run, stage=spec.stage, blindly=self._blindly)
        self._points.reach(AFTER_EFFECT)

    def observe(self, attempt: str) -> Job | None:
        found = self._wire.ask(call="observe", name=attempt)["job"]
        if found is None:
            return None
        since = found.pop("since")
        return Job(**found, since=None if since is None else datetime.fromisoformat(since))

    def stop(self, attempt: str) -> None:
        self._points.reach(CALL)
        self._wire.ask(call="stop", name=attempt)
        self._points.reach(AFTER_EFFECT)

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        return "", offset


class Data:
    """Data files that never change."""

    def fingerprint(self, uri: str, contents: Contents = "rows", version: int | None = None) -> Mapping[str, str]:
        return {uri: "1 byte"}


class Adopting(Runs):
    """Adoption removed: a stage is started whatever is there."""

    def act(self, record: RunRecord, following: RunStatus, effect: RunEffect) -> None:
        if isinstance(effect, StartStage):
            self._executor.start(self._stage(record, following, effect))
        else:
            super().act(record, following, effect)


@functools.cache
def nameless(run: str, stage: str, attempt: int) -> str:
    """A name that no other process would find."""
    return f"{run}-{stage}-{attempt}-{secrets.token_hex(4)}"


def build(engine: Engine, artifacts: str, clock: Clock, points: Points, mutant: str = "", claims: bool = False) -> Plane:
    """With claims: of the rows that it has claimed, as one of several; without, of all."""
    if mutant == "names":
        vars(shared.domain.run)["attempt_name"] = nameless
    rows = SAFEGUARDS.get(mutant, Rows)(engine, points, "run", RunStatus, RunSpec)
    kind = {"adoption": Adopting}.get(mutant, Runs)
    executor = WorldExecutor(points.wire, points, blindly=mutant == "adoption")
    registry, rollouts, events = Registry(engine, points), Rollouts(engine, points), SqlEventLog(engine)
    bases = StageCache(rows, registry, FsspecArtifacts(artifacts), SqlStageOutputs(engine), Data(), "1.0 test")
    runs = kind(rollouts, executor, events, clock, ("/data",), bases, Admissions(rows, clock, limit=4))
    if isinstance(rows, Hasty):
        rows.act, rows.effect_type = runs.act, RunEffect
    ours = replica(engine, clock) if claims else None
    return Plane(rows, Reconciler(runs, clock, ours).tick, ours)
