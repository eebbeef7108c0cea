"""Answers of the API as models. They keep fields that this version of the client does not name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from eyas_client.html_table import table

T = TypeVar("T")


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class Row(Answer):
    """Object that lists contain; a notebook shows its `columns`."""

    columns: ClassVar[tuple[str, ...]] = ()

    def cells(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.columns)

    def _repr_html_(self) -> str:
        return table(type(self).__name__.lower(), ("field", "value"), zip(self.columns, self.cells(), strict=True))


R = TypeVar("R", bound=Row)


class Rows(list[R]):
    """List that a notebook shows as a table."""

    def __init__(self, caption: str, columns: Sequence[str], rows: Iterable[R] = ()) -> None:
        super().__init__(rows)
        self.caption = caption
        self.columns = columns

    def _repr_html_(self) -> str:
        return table(f"{self.caption}: {len(self)}", self.columns, (row.cells() for row in self))


class Page(Answer, Generic[R]):
    items: list[R]
    next: str | None = None


class RankedItem(Row):
    columns = ("item", "score")

    item: int | str
    score: float | None


def _ranking(caption: str, items: list[RankedItem]) -> str:
    return table(caption, ("place", *RankedItem.columns), ((place, *item.cells()) for place, item in enumerate(items, 1)))


class Recommendations(Answer):
    request_id: str
    recommender: str
    version: int
    variant: str
    items: list[RankedItem]
    fallback: str | None
    slots: dict[str, list[RankedItem]] = {}
    explain: dict[str, Any] | None = None

    def _repr_html_(self) -> str:
        fallback = f", fallback: {self.fallback}" if self.fallback else ""
        caption = f"{self.recommender}: version {self.version} ({self.variant}){fallback}"
        slots = "".join(_ranking(f"{caption}, slot {name}", items) for name, items in self.slots.items())
        return slots or _ranking(caption, self.items)


class Scores(Answer):
    version: int
    variant: str
    items: list[RankedItem]
    fallback: str | None

    def _repr_html_(self) -> str:
        return _ranking(f"version {self.version} ({self.variant})", self.items)


class SimilarItems(Answer):
    version: int
    items: list[RankedItem]

    def _repr_html_(self) -> str:
        return _ranking(f"version {self.version}", self.items)


class RefusedLine(Answer):
    line: int
    message: str


class EventsAccepted(Answer):
    """Sums over all batches. `hits`, `duplicates` and `conflicts` are None if the platform counts them later."""

    accepted: int
    duplicates: int | None
    conflicts: int | None
    hits: int | None
    refused: int
    lines: list[RefusedLine]


class Written(Answer):
    accepted: int
    changed: int


class Deleted(Answer):
    deleted: int


class Item(Row):
    columns = ("item", "available", "attributes", "updated_at")

    item: int | str
    attributes: dict[str, Any]
    available: bool
    revision: int
    updated_at: datetime


class IdKinds(Answer):
    user: str | None
    item: str | None


class Route(Row):
    """Versions that serve, and the share of users of the candidate (`weight`)."""

    columns: ClassVar[tuple[str, ...]] = ("generation", "stable", "candidate", "weight", "rollout", "since")

    generation: int
    stable: int
    candidate: int | None
    weight: float
    step: int
    shadow: bool
    rollout: str | None
    since: datetime | None


class PastRoute(Route):
    columns: ClassVar[tuple[str, ...]] = ("generation", "since", "until", "stable", "candidate", "weight", "actor", "reason")

    until: datetime | None
    actor: str
    reason: str


class SpecRow(Row):
    """Recommender as its spec describes it."""

    name: str
    generation: int
    spec: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    ids: IdKinds


class Recommender(SpecRow):
    columns = ("name", "generation", "updated_at", "serving")

    serving: Route | None

    def cells(self) -> tuple[Any, ...]:
        return (self.name, self.generation, self.updated_at, self.serving and f"version {self.serving.stable}")


class AppliedRecommender(SpecRow):
    """`run` is the id of the run that the apply started, if any."""

    columns = ("name", "generation", "run", "warnings")

    run: str | None
    warnings: list[str]


class ValidSpec(Answer):
    valid: bool = True
    spec: dict[str, Any]
    warnings: list[str]


class PlannedStage(Row):
    columns = ("stage", "does", "why", "seconds", "memory")

    stage: str
    does: str
    attempt: str | None
    why: str
    seconds: float | None
    memory: str | None


class Plan(Answer):
    recommender: str
    mode: str
    applied: bool
    waits: str | None
    stages: list[PlannedStage]
    gates: list[str]
    data: dict[str, str]
    warnings: list[str]
    serving: int | None

    def _repr_html_(self) -> str:
        return table(f"plan of {self.recommender}: {self.mode}", PlannedStage.columns, (stage.cells() for stage in self.stages))


class Rollback(Answer):
    stable: int
    aborted: list[str]
    rollout: str | None


class Resource(Row):
    """Run or rollout."""

    id: str
    recommender: str
    state: str
    reason: str
    created_at: datetime
    cause: str
    asked_by: str | None


class Stage(Row):
    columns = ("stage", "attempt", "started_at", "ended_at", "reused")

    stage: str
    attempt: str
    started_at: datetime
    ended_at: datetime
    reused: bool
    why: str
    digest: str | None


class Gate(Row):
    columns = ("gate", "verdict", "reason")

    gate: str
    verdict: str
    reason: str


class Run(Resource):
    columns = ("id", "recommender", "state", "reason", "mode", "version", "rollout", "created_at")

    mode: str
    priority: int
    position: int | None
    attempt: int
    attempt_since: datetime | None
    why: str
    retry_at: datetime | None
    dead_letter: bool
    retry_of: str | None
    lineage: dict[str, Any]
    stages: list[Stage]
    planned_stages: list[str]
    gates: list[Gate]
    metrics: dict[str, float]
    version: int | None
    rollout: str | None
    progress: dict[str, Any] | None = None

    def _repr_html_(self) -> str:
        gates = table("gates", Gate.columns, (gate.cells() for gate in self.gates)) if self.gates else ""
        return super()._repr_html_() + gates


class Version(Row):
    columns = ("version", "aliases", "tags", "created_at", "run", "metrics")

    recommender: str
    version: int
    aliases: list[str]
    tags: list[str]
    collected_at: datetime | None
    run: str
    digest: str
    metrics: dict[str, float]
    lineage: dict[str, Any]
    parent: int | None
    files: dict[str, Any]
    created_at: datetime


class Check(Answer):
    name: str
    verdict: str
    reason: str


class Sample(Answer):
    users: int
    answers: int
    hits: int
    mean: float
    converted: int


class StepReport(Row):
    """Analysis of one step: `lift` is the candidate's relative difference, with its confidence interval."""

    columns = ("step", "weight", "verdict", "reason", "lift", "lower", "upper")

    step: int
    weight: float
    since: datetime | None
    stable: Sample
    candidate: Sample
    verdict: str
    reason: str
    checks: list[Check]
    lift: float | None
    lower: float | None
    upper: float | None


class Rollout(Resource):
    columns = ("id", "recommender", "version", "against", "state", "step", "reason", "created_at")

    version: int
    kind: str
    step: int
    steps: list[float]
    since: datetime | None
    looked_at: datetime | None
    shadow: dict[str, Any] | None
    reports: list[StepReport]
    against: int | None
    plan: dict[str, Any]
    deadline: datetime | None
    answers_to: list[str]

    def _repr_html_(self) -> str:
        reports = table("steps", StepReport.columns, (report.cells() for report in self.reports)) if self.reports else ""
        return super()._repr_html_() + reports


class Rates(Row):
    columns: ClassVar[tuple[str, ...]] = ("answers", "hits", "hit_rate", "conversion", "revenue_per_answer", "engagement")

    answers: int
    hits: int
    hit_rate: float
    conversions: int
    conversion: float
    revenue: float
    revenue_per_answer: float
    engagement: float


class VersionKpis(Rates):
    columns: ClassVar[tuple[str, ...]] = ("version", *Rates.columns, "coverage", "novelty")

    version: int
    kinds: dict[str, int]
    click_rate: list[float]
    variants: dict[str, Rates]
    slices: dict[str, Rates]
    looked: int
    coverage: float | None
    novelty: float | None


class Kpis(Answer):
    window: str
    versions: list[VersionKpis]

    def _repr_html_(self) -> str:
        return table(f"KPIs of the last {self.window}", VersionKpis.columns, (version.cells() for version in self.versions))


class DriftReading(Row):
    columns = ("detector", "feature", "size", "threshold", "chance", "limit")

    detector: str
    feature: str
    size: float
    threshold: float | None
    chance: float
    limit: float
    users_before: int
    users_now: int
    since: datetime | None


class Drift(Answer):
    state: str
    version: int | None
    at: datetime | None
    psi: dict[str, float]
    readings: list[DriftReading]
    retrainer: dict[str, Any] | None
    likes: int | None
    wanted: int | None

    def _repr_html_(self) -> str:
        return table(f"drift: {self.state}", DriftReading.columns, (reading.cells() for reading in self.readings))
