"""Answer models of the API: one per noun, so that OpenAPI describes everything to a client generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from shared.contracts.codec import encode
from shared.contracts.progress import Progress
from shared.contracts.records import Lineage
from shared.contracts.stage import Files
from shared.domain.entity_ids import IdKind
from shared.domain.queue import AdmissionDecision
from shared.domain.route import Route
from shared.domain.run import STAGES, StageDone
from shared.domain.stage_reuse import ReuseBasis, part
from shared.ports import HistoryEntry, Recommender, RouteEntry, RunRecord, Version
from shared.run_factory import stages_of


class RouteView(BaseModel):
    generation: int
    stable: int
    candidate: int | None
    weight: float
    step: int
    shadow: bool = Field(description="Whether the candidate is in shadow: its answers are not shown.")
    rollout: str | None
    since: datetime | None

    @classmethod
    def of(cls, route: Route) -> RouteView:
        return cls(**vars(route), rollout=route.salt or None)


class IdKindsView(BaseModel):
    """Kinds of ids; null until the first run or the first write fixes them."""

    user: IdKind | None = Field(description="`integer` or `text`.")
    item: IdKind | None = Field(description="`integer` or `text`.")


class RecommenderView(BaseModel):
    name: str
    generation: int
    spec: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    ids: IdKindsView = Field(description="Kinds of the ids of users and items.")

    @staticmethod
    def fields(recommender: Recommender) -> dict[str, Any]:
        return vars(recommender) | {"spec": recommender.spec.document(), "ids": vars(recommender.ids)}


class ServingRecommender(RecommenderView):
    serving: RouteView | None = Field(description="Route that serves; null until a first version has been promoted.")


class SpecEntry(BaseModel):
    generation: int
    at: datetime = Field(description="Time of the change.")
    actor: str = Field(description="Who changed the spec.")


class SpecView(SpecEntry):
    spec: dict[str, Any] = Field(description="Spec as it was stored then; this version of the platform may not be able to read it.")


class AppliedRecommender(RecommenderView):
    run: str | None = Field(description="Run that this change started; null if none.")
    warnings: list[str] = Field(description="Attributes that filters or rules name and nobody knows yet.")


class Valid(BaseModel):
    valid: Literal[True] = True
    spec: dict[str, Any] = Field(description="Spec with every default filled in.")
    warnings: list[str] = Field(description="What would fail in a run now, such as a missing file.")


class StageView(BaseModel):
    stage: str
    attempt: str = Field(description="Attempt that published the stage; of an earlier run if the stage is reused.")
    started_at: datetime
    ended_at: datetime
    reused: bool
    why: str = Field(description="Why the stage was reused, or why it ran.")
    digest: str | None = Field(description="Digest of the stage's inputs; null if the stage cannot be reused.")

    @classmethod
    def of(cls, done: StageDone) -> StageView:
        basis = done.basis or ReuseBasis()
        return cls(**vars(done), reused=done.reused, why=basis.why, digest=basis.digest or None)


class GateView(BaseModel):
    gate: str
    verdict: str
    reason: str


class RunView(BaseModel):
    id: str
    recommender: str
    state: str
    reason: str
    mode: str
    cause: str
    created_at: datetime
    priority: int = Field(description="Priority in the queue: higher values go first.")
    position: int | None = Field(description="Position in the queue; null if the run waits for something else, or does not wait.")
    attempt: int = Field(description="Number of the attempt of the active stage.")
    attempt_since: datetime | None = Field(description="Start of the active attempt; null if there is none.")
    why: str = Field(description="Why the active stage runs, or is reused.")
    retry_at: datetime | None = Field(description="Start of the next attempt, after the pause that follows a fault.")
    dead_letter: bool = Field(description="Whether the run gave up: no attempts or no time left. `:retry` continues where it ended.")
    retry_of: str | None = Field(description="Run that this run continues.")
    asked_by: str | None
    lineage: dict[str, Any] = Field(description="Inputs of the run: spec, data, code, seeds, and the version that served.")
    asked: str | None = Field(description="Verb of a pending request; null if there is none.")
    stages: list[StageView]
    planned_stages: list[str] = Field(description="All stages of the run, in order.")
    gates: list[GateView]
    metrics: dict[str, float]
    version: int | None
    rollout: str | None
    progress: Progress | None = Field(None, description="Last reported progress of the active stage; null if there is none.")

    @classmethod
    def of(
        cls,
        record: RunRecord,
        metrics: Mapping[str, float],
        version: int | None,
        rollout: str | None,
        turn: AdmissionDecision | None = None,
        progress: Progress | None = None,
    ) -> RunView:
        status, spec = record.status, record.spec
        waits = turn.summary if turn is not None and status.state == "pending" else None
        return cls(
            id=record.id,
            recommender=record.recommender,
            state=status.state,
            reason=waits or status.reason,
            mode=spec.mode,
            cause=spec.cause,
            created_at=record.created_at,
            priority=record.priority,
            position=turn.position if turn is not None else None,
            attempt=status.attempt,
            attempt_since=status.attempt_since if status.state in STAGES else None,
            why=status.basis.why if status.basis is not None and status.state in STAGES else "",
            retry_at=status.retry_at,
            dead_letter=status.dead_letter,
            retry_of=spec.retry_of,
            asked_by=spec.by,
            lineage=_lineage(record),
            asked=record.request.verb if record.request else None,
            stages=[StageView.of(done) for done in status.stages],
            planned_stages=list(stages_of(record)),
            gates=[GateView.model_validate(gate, from_attributes=True) for gate in status.gates],
            metrics=dict(metrics),
            version=version,
            rollout=rollout,
            progress=progress,
        )


def _lineage(record: RunRecord) -> dict[str, Any]:
    """Returns what is known by now; the registered version has all of it."""
    parts = {name: value for done in record.status.stages[:1] if done.basis is not None for name, value in done.basis.parts.items()}
    return {
        "spec_generation": record.spec.generation,
        "spec_digest": part(record.spec.document),
        "serving": record.spec.serving,
        "code": parts.get("code"),
        "data": {name.removeprefix("data: "): value for name, value in parts.items() if name.startswith("data: ")},
        "seeds": {"train": record.spec.document.get("model", {}).get("train", {}).get("seed")},
    }


class VersionView(BaseModel):
    recommender: str
    version: int
    aliases: list[str] = Field(description="Aliases that name this version now: of serving, previous and candidate.")
    tags: list[str]
    collected_at: datetime | None = Field(description="When the files were collected; such a version cannot serve again.")
    run: str
    digest: str
    metrics: dict[str, float]
    lineage: dict[str, Any]
    parent: int | None
    files: Files
    created_at: datetime

    @classmethod
    def of(cls, version: Version, names: Sequence[str], tags: Sequence[str], collected_at: datetime | None) -> VersionView:
        values = vars(version) | {"version": version.number, "lineage": encode(Lineage, version.lineage)}
        return cls(**values, aliases=list(names), tags=list(tags), collected_at=collected_at)


class ServedView(RouteView):
    until: datetime | None = Field(description="End of the time; null if this route still serves.")
    actor: str
    reason: str

    @classmethod
    def entry(cls, entry: RouteEntry) -> ServedView:
        return cls(**RouteView.of(entry.route).model_dump(), until=entry.until, actor=entry.actor, reason=entry.reason)


class EventView(BaseModel):
    at: datetime
    source: str
    target: str
    reason: str
    actor: str

    @classmethod
    def of(cls, entry: HistoryEntry) -> EventView:
        return cls.model_validate(entry, from_attributes=True)
