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
from shared.domain.queue import Turn
from shared.domain.route import Route
from shared.domain.run import STAGES, StageDone
from shared.domain.stage_reuse import Basis, part
from shared.ports import HistoryEntry, Recommender, RouteEntry, RunRecord, Version
from shared.run_factory import stages_of


class RouteView(BaseModel):
    generation: int
    stable: int
    candidate: int | None
    weight: float
    step: int
    shadow: bool = Field(description="The candidate is asked beside the stable version, for nobody to see.")
    rollout: str | None
    since: datetime | None

    @classmethod
    def of(cls, route: Route) -> RouteView:
        return cls(
            generation=route.generation,
            stable=route.stable,
            candidate=route.candidate,
            weight=route.weight,
            step=route.step,
            shadow=route.shadow,
            rollout=route.salt or None,
            since=route.since,
        )


class RecommenderView(BaseModel):
    name: str
    generation: int
    spec: dict[str, Any]
    created_at: datetime
    updated_at: datetime

    @staticmethod
    def fields(recommender: Recommender) -> dict[str, Any]:
        return {
            "name": recommender.name,
            "generation": recommender.generation,
            "spec": recommender.spec.document(),
            "created_at": recommender.created_at,
            "updated_at": recommender.updated_at,
        }


class ServingRecommender(RecommenderView):
    serving: RouteView | None = Field(description="Null until a first version has been promoted.")


class SpecEntry(BaseModel):
    generation: int
    at: datetime = Field(description="When it was written.")
    actor: str = Field(description="By whom.")


class SpecView(SpecEntry):
    spec: dict[str, Any] = Field(description="As it was stored then; this platform may not read it any more.")


class AppliedRecommender(RecommenderView):
    run: str | None = Field(description="The run that this change has started.")


class Valid(BaseModel):
    valid: Literal[True] = True
    spec: dict[str, Any] = Field(description="With every default filled in.")
    warnings: list[str] = Field(description="What a run would stumble over as things are now, such as a file that isn't there.")


class StageView(BaseModel):
    stage: str
    attempt: str = Field(description="The one that published it: of an earlier run where it is reused.")
    started_at: datetime
    ended_at: datetime
    reused: bool
    why: str = Field(description="Why it was reused, or why it ran.")
    digest: str | None = Field(description="Of what it was made of; null where that can't stand for a later stage.")

    @classmethod
    def of(cls, done: StageDone) -> StageView:
        basis = done.basis or Basis()
        return cls(
            stage=done.stage,
            attempt=done.attempt,
            started_at=done.started_at,
            ended_at=done.ended_at,
            reused=done.reused,
            why=basis.why,
            digest=basis.digest or None,
        )


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
    priority: int = Field(description="Higher goes first among those that wait.")
    position: int | None = Field(description="In the queue for a free place; null if it waits for something else, or not at all.")
    attempt: int = Field(description="Of the stage under way.")
    attempt_since: datetime | None = Field(description="When the attempt under way was started; null while none is.")
    why: str = Field(description="Why the stage under way runs, or is reused.")
    retry_at: datetime | None = Field(description="When the next attempt starts, after the pause that follows a fault.")
    dead_letter: bool = Field(description="It gave up: out of attempts or of patience. `:retry` goes on from where it ended.")
    retry_of: str | None = Field(description="The run that it goes on from.")
    asked_by: str | None
    lineage: dict[str, Any] = Field(description="What it was made of: spec, data, code, seeds, and the versions that it knew.")
    asked: str | None = Field(description="What was asked of it and isn't answered yet.")
    stages: list[StageView]
    planned_stages: list[str] = Field(description="All that it goes through, in order.")
    gates: list[GateView]
    metrics: dict[str, float]
    version: int | None
    rollout: str | None
    progress: Progress | None = Field(
        None, description="Of the stage under way, as it told last; null of stages that don't, and between them."
    )

    @classmethod
    def of(
        cls,
        record: RunRecord,
        metrics: Mapping[str, float],
        version: int | None,
        rollout: str | None,
        turn: Turn | None = None,
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
            asked=record.asked.verb if record.asked else None,
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
    aliases: list[str] = Field(description="Of serving, previous and candidate: those that mean this version now.")
    tags: list[str]
    collected_at: datetime | None = Field(description="When its files were given up; such a version can't serve again.")
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
    until: datetime | None = Field(description="Null: it serves still.")
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
