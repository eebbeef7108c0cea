"""Forecast of a run, and comparison of two runs. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from services.api.access import RoleRouter, Who
from services.api.bodies import SPEC_BODY, SpecBody
from services.api.data_locations import faults_of_places, resolve_spec
from services.api.dependencies import ControlParts, With
from services.api.rate_limits import HEAVY
from services.api.runs import Priority, make_run, run_view
from services.api.spec_names import check_names
from services.api.views import GateView, RunView, StageView
from shared.domain.access import Role
from shared.domain.compare import differences, numbers
from shared.domain.errors import NotFound
from shared.domain.warm_or_full import RequestedMode
from shared.ports import Recommender, RunRecord
from shared.run_factory import RunTerms

room = RoleRouter("plans")


class PlanRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: RequestedMode = Field(
        "full", description="Mode: `warm` starts from the serving version's weights; `auto` chooses by the spec's `retrain.auto`."
    )
    priority: Priority = 0
    fresh: bool = Field(False, description="Run every stage, without stage reuse.")


class PlannedStage(BaseModel):
    stage: str
    does: Literal["run", "reuse", "open"] = Field(description="Forecast; `open`: it depends on what the earlier stages publish.")
    attempt: str | None = Field(description="Attempt that would be reused.")
    why: str
    seconds: float | None = Field(
        description="Duration of the stage in the newest run of this mode that ran it; for a refit that has never run, the duration of "
        "train. Null for a reused stage, or if there is no such run."
    )
    memory: str | None = Field(description="Memory of the stage's Job, such as 8Gi; null for the operator's default.")


class PlanView(BaseModel):
    recommender: str
    mode: str
    applied: bool = Field(description="Whether this spec is the current one of the recommender.")
    waits: str | None = Field(description="What the run would wait for; null if it could start at once.")
    stages: list[PlannedStage]
    gates: list[str]
    data: dict[str, str] = Field(description="Files that the run would read, each with the text by which a change is noticed.")
    warnings: list[str] = Field(description="What would fail now, such as a missing file or encoder.")
    serving: int | None = Field(description="Version that the run would be compared with, or started from.")


class DifferenceView(BaseModel):
    path: str
    left: Any
    right: Any


class NumbersView(BaseModel):
    metric: str
    left: float | None
    right: float | None
    change: float | None = Field(description="Right value minus left value.")


class StagePair(BaseModel):
    stage: str
    left: StageView | None
    right: StageView | None
    left_seconds: float | None = Field(description="Duration in the first run; null if the stage was reused or not reached.")
    right_seconds: float | None
    parts: list[DifferenceView] = Field(description="Inputs of the stage that differ.")


class GatePair(BaseModel):
    gate: str
    left: GateView | None
    right: GateView | None


class Side(BaseModel):
    id: str
    recommender: str
    state: str
    reason: str
    version: int | None


class Comparison(BaseModel):
    left: Side
    right: Side
    spec: list[DifferenceView]
    lineage: list[DifferenceView] = Field(description="Differences in data, code, mode, cause and the versions that each run started with.")
    metrics: list[NumbersView]
    gates: list[GatePair]
    stages: list[StagePair]


@room.post("/v1/recommenders/{name}:plan", Role.VIEWER, audited=False, work=HEAVY)
def plan_run(parts: With, name: str, request: PlanRequest | None = None) -> PlanView:
    """Forecasts a run: which stages run, which are reused, and why. Writes nothing."""
    return _plan(parts, parts.recommenders.get(name), request or PlanRequest(), applied=True)


@room.post("/v1/recommenders:plan", Role.OPERATOR, audited=False, openapi_extra=SPEC_BODY, work=HEAVY)
def plan_spec(parts: With, who: Who, spec: SpecBody, mode: Annotated[RequestedMode, Query()] = "full") -> PlanView:
    """Forecasts a run of a spec that isn't applied, for a new or existing recommender. Writes nothing."""
    who.enters(spec.name)
    spec = resolve_spec(parts, spec)
    warnings = check_names(parts, spec)
    now = parts.clock.now()
    try:
        current = parts.recommenders.get(spec.name)
    except NotFound:
        current = Recommender(spec.name, 0, spec, now, now)
    applied = current.generation > 0 and current.spec == spec
    return _plan(
        parts, Recommender(spec.name, current.generation, spec, current.created_at, now), PlanRequest(mode=mode), applied, warnings
    )


def _plan(parts: ControlParts, recommender: Recommender, request: PlanRequest, applied: bool, warnings: Sequence[str] = ()) -> PlanView:
    run = make_run(parts, recommender, request.mode, "a plan", RunTerms(priority=request.priority, fresh=request.fresh))
    plan = parts.plan(run)
    return PlanView(
        recommender=recommender.name,
        mode=run.spec.mode,
        applied=applied,
        waits=plan.waits,
        stages=[PlannedStage.model_validate(stage, from_attributes=True) for stage in plan.stages],
        gates=list(plan.gates),
        data=dict(plan.data),
        warnings=[*faults_of_places(parts, recommender.spec, run.spec.mode == "warm"), *warnings],
        serving=run.spec.serving,
    )


@room.get("/v1/runs/{id}/compare", Role.VIEWER)
def compare_runs(
    parts: With, who: Who, id: str, other: Annotated[str, Query(alias="with", max_length=120, description="Id of the other run.")]
) -> Comparison:
    """Compares the settings and the numbers of two runs. The older run is the left one, so a change is from older to newer."""
    runs = who.row("run", parts.runs, id), who.row("run", parts.runs, other)
    left, right = sorted(runs, key=lambda run: (run.created_at, run.id))
    views = run_view(parts, left), run_view(parts, right)
    return Comparison(
        left=_side(views[0]),
        right=_side(views[1]),
        spec=[
            DifferenceView.model_validate(difference, from_attributes=True)
            for difference in differences(left.spec.document, right.spec.document)
        ],
        lineage=[
            DifferenceView.model_validate(difference, from_attributes=True)
            for difference in differences(_lineage(views[0]), _lineage(views[1]))
        ],
        metrics=[
            NumbersView.model_validate(comparison, from_attributes=True) for comparison in numbers(views[0].metrics, views[1].metrics)
        ],
        gates=_gates(*views),
        stages=_stages(left, right, *views),
    )


def _side(view: RunView) -> Side:
    return Side(id=view.id, recommender=view.recommender, state=view.state, reason=view.reason, version=view.version)


def _lineage(view: RunView) -> dict[str, Any]:
    return view.lineage | {"mode": view.mode, "cause": view.cause, "asked_by": view.asked_by, "retry_of": view.retry_of}


def _gates(left: RunView, right: RunView) -> list[GatePair]:
    sides = {gate.gate: gate for gate in left.gates}, {gate.gate: gate for gate in right.gates}
    return [GatePair(gate=name, left=sides[0].get(name), right=sides[1].get(name)) for name in dict.fromkeys((*sides[0], *sides[1]))]


def _stages(left: RunRecord, right: RunRecord, left_view: RunView, right_view: RunView) -> list[StagePair]:
    sides = {done.stage: done for done in left_view.stages}, {done.stage: done for done in right_view.stages}
    parts = [{done.stage: dict(done.basis.parts) if done.basis else {} for done in run.status.stages} for run in (left, right)]
    return [
        StagePair(
            stage=name,
            left=sides[0].get(name),
            right=sides[1].get(name),
            left_seconds=_seconds(sides[0].get(name)),
            right_seconds=_seconds(sides[1].get(name)),
            parts=[
                DifferenceView(path=part, left=parts[0][name].get(part), right=parts[1][name].get(part))
                for part in sorted({*parts[0].get(name, {}), *parts[1].get(name, {})})
                if name in parts[0] and name in parts[1] and parts[0][name].get(part) != parts[1][name].get(part)
            ],
        )
        for name in dict.fromkeys((*sides[0], *sides[1]))
    ]


def _seconds(stage: StageView | None) -> float | None:
    return None if stage is None or stage.reused else (stage.ended_at - stage.started_at).total_seconds()
