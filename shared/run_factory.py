"""Factories of the rows of runs and rollouts, for the API and the retrainer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shared.contracts.gates import MetricGate
from shared.contracts.records import RolloutSpec, RunSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import Conflict, Invalid
from shared.domain.machine import Request
from shared.domain.rollout import RolloutStatus
from shared.domain.run import MACHINE, RunStatus, StageDone, run_stages
from shared.domain.warm_or_full import Mode
from shared.ports import Recommender, Record, RolloutRecord, RunRecord, Version

_CACHED_SPECS = 1000
_specs: dict[str, tuple[Mapping[str, Any], RecommenderSpec]] = {}


@dataclass(frozen=True)
class RunTerms:
    """Origin of a run. `fresh`: run every stage, without stage reuse."""

    by: str = "eyas"
    priority: int = 0
    fresh: bool = False
    trigger: str = ""
    """Trigger of the run, such as `kpi`; empty for a person's run."""


def new_run(
    recommender: Recommender, id: str, mode: Mode, cause: str, serving: int | None, now: datetime, terms: RunTerms = RunTerms()
) -> RunRecord:
    """Creates a run of the current spec. `serving` is the serving version: a warm run starts from it, gates compare with it."""
    spec = RunSpec(recommender.spec.document(), recommender.generation, mode, cause, serving, terms.by, terms.fresh, terms.trigger)
    return Record(id=id, recommender=recommender.name, spec=spec, status=RunStatus(), created_at=now, due_at=now, priority=terms.priority)


def retry_run(old: RunRecord, stage: str | None, id: str, cause: str, now: datetime, *, by: str, accept: bool = False) -> RunRecord:
    """Creates a new run of an old run's plan that starts at a stage; the output of earlier stages is adopted. `accept`: this person accepts
    inconclusive gates."""
    state, done = old.status.state, old.status.stages
    if not MACHINE.terminal(state):
        raise Conflict(f"run {old.id} is {state}: only an ended run can be retried; wait, or cancel it first")
    if state == "registered":
        raise Conflict(
            f"run {old.id} has registered its version, so it cannot be retried: start a new run, with `fresh` to run every stage"
        )
    stages = stages_of(old)
    chosen = stage or ended_in(old)
    if chosen not in stages:
        raise Invalid(f"from: unknown stage '{chosen}'; known: {', '.join(stages)}")
    published = [finished.stage for finished in done]
    possible = stages[: len(published) + 1]
    if chosen not in possible:
        raise Conflict(
            f"run {old.id} has published {' and '.join(published) or 'no stage'}: it can be retried from {' or '.join(possible)}"
        )
    adopt, accepts = {finished.stage: finished for finished in done[: stages.index(chosen)]}, by if accept else ""
    spec = replace(old.spec, cause=cause, by=by, retry_of=old.id, from_stage=chosen, adopt=adopt, accepts=accepts)
    return replace(old, id=id, spec=spec, status=RunStatus(), created_at=now, due_at=now, revision=0, request=None, intent=None)


def spec_of(record: RunRecord | RolloutRecord) -> RecommenderSpec:
    """Returns the spec of the row; cached, because each pass needs it several times."""
    document = record.spec.document
    cached = _specs.get(record.id)
    if cached is not None and cached[0] == document:
        return cached[1]
    spec = read(RecommenderSpec, document, f"spec of {record.id}")
    if len(_specs) >= _CACHED_SPECS:
        _specs.clear()
    _specs[record.id] = (document, spec)
    return spec


def stages_of(record: RunRecord) -> tuple[str, ...]:
    """Returns the stages of a run, in order."""
    return run_stages(record.spec.document["split"]["refit"])


def ended_in(record: RunRecord) -> str:
    """Returns the stage in which a run ended: the current one, or the one whose gate did not pass."""
    status, stages = record.status, stages_of(record)
    at = len(status.stages) - (status.state == "rejected")
    return stages[max(0, min(at, len(stages) - 1))]


def adopted(record: RunRecord, stage: str, done: tuple[StageDone, ...]) -> StageDone | None:
    """Returns the output that a retried run adopts for a stage, if all stages before it are adopted too."""
    adopt = record.spec.adopt or {}
    same = all(finished.stage in adopt and adopt[finished.stage].attempt == finished.attempt for finished in done)
    return adopt.get(stage) if same else None


def rests_on(record: RunRecord) -> int | None:
    """Returns the version whose files the run reads, to start from or to compare with; else None."""
    number = record.spec.serving
    if number is None or record.spec.mode == "warm":
        return number
    gates = spec_of(record).gates
    compares = any(isinstance(gate, MetricGate) and "serving" in (gate.better_than, gate.not_worse_than) for gate in gates)
    return number if compares else None


def collected_basis(record: RunRecord, collected: Mapping[int, datetime]) -> str | None:
    """Returns why the run is not possible, if the files of the version that it needs were collected."""
    number = rests_on(record)
    if number is None or number not in collected:
        return None
    verb = "starts from" if record.spec.mode == "warm" else "is compared with"
    return (
        f"the run {verb} version {number} of '{record.recommender}', which was collected on {collected[number]:%Y-%m-%d}:"
        " its files are deleted; start a new run"
    )


def table_place(recommender: str, version: int) -> str:
    """Returns where the artifact store shows the batch table of a version."""
    return f"recommendations/{recommender}/{version}.parquet"


def rollout_id(run: str) -> str:
    """Returns the deterministic id of the rollout of a registered run, so that it starts once."""
    return f"{run}-rollout"


def asked_rollout(recommender: Recommender, version: int, id: str, request: Request, now: datetime) -> RolloutRecord:
    """Creates a rollout of a registered version with the current spec."""
    spec = RolloutSpec(version, recommender.spec.document(), start=request)
    status = RolloutStatus(reason=request.summary())
    return Record(id=id, recommender=recommender.name, spec=spec, status=status, created_at=now, due_at=now)


def back_rollout(recommender: Recommender, version: int, id: str, request: Request, now: datetime) -> RolloutRecord:
    """Creates a rollout that loads a version and routes all users to it, without shadow and canary."""
    spec = RolloutSpec(version, recommender.spec.document(), back=request)
    return Record(id=id, recommender=recommender.name, spec=spec, status=RolloutStatus(), created_at=now, due_at=now)


def proven(version: Version) -> bool:
    """Returns whether the version passed parity on a real server."""
    return math.isfinite(version.metrics.get("parity", math.nan))
