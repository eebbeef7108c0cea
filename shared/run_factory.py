"""How a run begins, and a rollout that somebody asks for: the rows that the API and the retrainer make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shared.contracts.codec import decode, encode
from shared.contracts.gates import MetricGate
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import Conflict, Invalid
from shared.domain.machine import Request
from shared.domain.rollout import RolloutStatus
from shared.domain.run import MACHINE, RunStatus, StageDone, run_stages
from shared.domain.warm_or_full import Mode
from shared.ports import Recommender, Record, Version


@dataclass(frozen=True)
class Terms:
    """Who asked for a run, and how: `fresh` runs every stage, whatever an earlier run has published."""

    by: str = "eyas"
    priority: int = 0
    fresh: bool = False
    trigger: str = ""
    """Which trigger started it, such as `kpi`; empty for a person's run."""


def new_run(
    recommender: Recommender,
    id: str,
    mode: Mode,
    cause: str,
    serving: int | None,
    now: datetime,
    terms: Terms = Terms(),
) -> Record[RunStatus]:
    """A run of the spec as it stands. `serving` is the version that serves: a warm run starts from it, gates compare with it."""
    spec = {
        "document": recommender.spec.document(),
        "generation": recommender.generation,
        "mode": mode,
        "cause": cause,
        "serving": serving,
        "by": terms.by,
        "fresh": terms.fresh,
        "trigger": terms.trigger,
    }
    return Record(id=id, recommender=recommender.name, spec=spec, status=RunStatus(), created_at=now, due_at=now, priority=terms.priority)


def retry_run(
    old: Record[RunStatus], stage: str | None, id: str, cause: str, now: datetime, *, by: str, accept: bool = False
) -> Record[RunStatus]:
    """A new run of what the old one was to do, from a stage on: what it had published before that stage is adopted as it is. `accept`:
    gates that come out inconclusive don't refuse it, by this person's decision."""
    state, done = old.status.state, old.status.stages
    if not MACHINE.terminal(state):
        raise Conflict(f"run {old.id} is {state} and can be retried once it has ended; cancel it first if it is to end now")
    if state == "registered":
        raise Conflict(
            f"run {old.id} has registered its version, so there is nothing to retry: start a run, with `fresh` if all of it is to run"
        )
    stages = stages_of(old)
    chosen = stage or ended_in(old)
    if chosen not in stages:
        raise Invalid(f"from: no stage is called '{chosen}'; the stages are {', '.join(stages)}")
    published = [finished.stage for finished in done]
    possible = stages[: len(published) + 1]
    if chosen not in possible:
        raise Conflict(
            f"run {old.id} has published {' and '.join(published) or 'no stage'}: it can be retried from {' or '.join(possible)}"
        )
    to_adopt = {finished.stage: encode(StageDone, finished) for finished in done[: stages.index(chosen)]}
    spec = {**old.spec, "cause": cause, "by": by, "retry_of": old.id, "from": chosen, "adopt": to_adopt, "accepts": by if accept else ""}
    return replace(old, id=id, spec=spec, status=RunStatus(), created_at=now, due_at=now, revision=0, asked=None, intent=None)


def stages_of(record: Record[RunStatus]) -> tuple[str, ...]:
    """The stages of a run, in order. A document of a release without refits names none."""
    return run_stages(record.spec["document"].get("split", {}).get("refit", False))


def ended_in(record: Record[RunStatus]) -> str:
    """The stage that a run ended in: the one under way, or the one whose gate refused it."""
    status, stages = record.status, stages_of(record)
    at = len(status.stages) - (status.state == "rejected")
    return stages[max(0, min(at, len(stages) - 1))]


def adopted(record: Record[RunStatus], stage: str, done: tuple[StageDone, ...]) -> StageDone | None:
    """What a retried run takes over for a stage, if all stages before it are taken over too."""
    to_adopt: dict[str, Any] = record.spec.get("adopt", {})
    same = all(finished.stage in to_adopt and to_adopt[finished.stage]["attempt"] == finished.attempt for finished in done)
    return decode(StageDone, to_adopt[stage]) if same and stage in to_adopt else None


def rests_on(record: Record[RunStatus]) -> int | None:
    """The version whose files the run reads: to start from, or to compare with."""
    number: int | None = record.spec["serving"]
    if number is None or record.spec["mode"] == "warm":
        return number
    gates = read(RecommenderSpec, record.spec["document"], f"spec of {record.id}").gates
    compares = any(isinstance(gate, MetricGate) and "serving" in (gate.better_than, gate.not_worse_than) for gate in gates)
    return number if compares else None


def collected_basis(record: Record[RunStatus], collected: Mapping[int, datetime]) -> str | None:
    """Why the run can't be, if the version that it rests on has no files any more."""
    number = rests_on(record)
    if number is None or number not in collected:
        return None
    verb = "starts from" if record.spec["mode"] == "warm" else "is compared with"
    return (
        f"the run {verb} version {number} of '{record.recommender}', which was collected on {collected[number]:%Y-%m-%d}:"
        " its files are gone; start a new run"
    )


def rollout_id(run: str) -> str:
    """The rollout that follows a registered run: deterministic, so that it is started once."""
    return f"{run}-rollout"


def asked_rollout(recommender: Recommender, version: int, id: str, request: Request, now: datetime) -> Record[RolloutStatus]:
    """Of a version that was registered before, by the spec as it stands: from there on like one that a run starts."""
    spec = {"version": version, "document": recommender.spec.document(), "start": encode(Request, request)}
    status = RolloutStatus(reason=request.summary())
    return Record(id=id, recommender=recommender.name, spec=spec, status=status, created_at=now, due_at=now)


def back_rollout(recommender: Recommender, version: int, id: str, request: Request, now: datetime) -> Record[RolloutStatus]:
    """Loads a version that isn't loaded any more, and sends everybody to it: no shadow, no canary."""
    spec = {"version": version, "document": recommender.spec.document(), "back": encode(Request, request)}
    return Record(id=id, recommender=recommender.name, spec=spec, status=RolloutStatus(), created_at=now, due_at=now)


def goes_back(record: Record[RolloutStatus]) -> Request | None:
    """Who asked for a rollout that goes back; None of any other."""
    request = record.spec.get("back")
    return None if request is None else decode(Request, request)


def asked_for(record: Record[RolloutStatus]) -> Request | None:
    """Who asked for a rollout, to go forward or back; None of one that a run started."""
    request = record.spec.get("start")
    return goes_back(record) if request is None else decode(Request, request)


def proven(version: Version) -> bool:
    """It was held against its training on a real server."""
    return math.isfinite(version.metrics.get("parity", math.nan))
