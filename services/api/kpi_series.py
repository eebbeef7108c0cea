"""KPI history over HTTP: what each version earned over time, with confidence intervals, for a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import RoleRouter
from services.api.dependencies import With
from services.api.kpis import span
from services.monitor.kpi_history import MOST_STRETCHES, MOST_VERSIONS, KpiPeriod, LifeQuery, VersionHistories, telling
from shared.domain.access import Role

room = RoleRouter("monitoring")

Since = Annotated[AwareDatetime | None, Query(description="Start; when absent, the creation of the recommender.")]
Until = Annotated[
    AwareDatetime | None,
    Query(description="End; when absent, the newest counted answer of the serving version or of an earlier one, or else now."),
]
Window = Annotated[str | None, Query(max_length=20, examples=["1d"], description="Length of the time before the end; instead of `since`.")]


LAST = "Point that represents all: the newest one with enough users; if there is none, the one with the most users."


class LifePoint(BaseModel):
    since: AwareDatetime = Field(description="Start of the interval.")
    until: AwareDatetime = Field(description="End of the interval, exclusive.")
    users: int = Field(description="Users who got answers of the version itself. A user is one observation.")
    answers: int
    hits: int
    hit_rate: float = Field(description="Mean, over these users, of the share of their answers that were hits.")
    low: float = Field(description="Lower end of Wilson's 95 % interval over users; too wide if users get several answers.")
    high: float = Field(description="Upper end of the same interval.")

    @classmethod
    def of(cls, stretch: KpiPeriod) -> Self:
        low, high = stretch.bounds
        counts = {"users": stretch.sample.users, "answers": stretch.sample.answers, "hits": stretch.sample.hits}
        return cls(since=stretch.since, until=stretch.until, hit_rate=stretch.sample.mean, low=low, high=high, **counts)


class VersionLife(BaseModel):
    version: int
    points: list[LifePoint] = Field(description="Points, the oldest first; intervals without an answer are left out.")
    last: LifePoint | None = Field(description=LAST)

    @classmethod
    def of(cls, version: int, line: Sequence[KpiPeriod]) -> Self:
        return cls(version=version, points=[LifePoint.of(stretch) for stretch in line], last=last_of(line))


def last_of(line: Sequence[KpiPeriod]) -> LifePoint | None:
    stretch = telling(line)
    return LifePoint.of(stretch) if stretch else None


class LifeView(BaseModel):
    since: AwareDatetime = Field(description="Start of the first interval.")
    until: AwareDatetime = Field(description="Latest end of the last interval.")
    every: float = Field(description="Length of an interval in seconds, rounded to a step of the clock.")
    newest: AwareDatetime | None = Field(description="Time of the newest answer of the serving version.")
    versions: list[VersionLife] = Field(description="Versions that answered in this time.")
    left_out: int = Field(description=f"Number of earlier versions that are left out: at most {MOST_VERSIONS} versions are listed.")

    @classmethod
    def of(cls, life: VersionHistories) -> Self:
        versions = [VersionLife.of(number, line) for number, line in life.versions.items()]
        seconds = life.every.total_seconds()
        return cls(since=life.since, until=life.until, every=seconds, newest=life.newest, versions=versions, left_out=life.left_out)


@room.get("/v1/recommenders/{name}/life", Role.VIEWER)
def get_life(
    parts: With,
    name: str,
    since: Since = None,
    until: Until = None,
    window: Window = None,
    points: Annotated[int, Query(ge=1, le=MOST_STRETCHES, description="Approximate number of intervals.")] = 60,
) -> LifeView:
    """Returns hit rates by version in intervals of equal length, each with its 95 % interval over users. Answers whose attribution window
    has not closed are left out."""
    parts.recommenders.get(name)
    return LifeView.of(parts.life(name, LifeQuery(points, since, until, None if window is None else span("window", window))))
