"""KPI history over HTTP: what each version earned over time, with confidence intervals, for a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from services.api.access import Room
from services.api.dependencies import With
from services.api.kpis import span
from services.monitor.kpi_history import MOST_STRETCHES, MOST_VERSIONS, Life, LifeQuery, Stretch, telling
from shared.domain.access import Role

room = Room("monitoring")

Since = Annotated[AwareDatetime | None, Query(description="Absent: when the recommender was created.")]
Until = Annotated[
    AwareDatetime | None,
    Query(description="Absent: when the newest answer of the version that serves, or of those before it, was counted; now without one."),
]
Window = Annotated[str | None, Query(max_length=20, examples=["1d"], description="Instead of `since`: so long before the end.")]


LAST = "What is said in one figure: the newest of them in which users enough answered; without such a one, that with most users."


class LifePoint(BaseModel):
    since: AwareDatetime = Field(description="Where the stretch begins.")
    until: AwareDatetime = Field(description="Its end, which it doesn't hold.")
    users: int = Field(description="Who got answers of the version's own in it. A user is one observation.")
    answers: int
    hits: int
    hit_rate: float = Field(description="The mean, over these users, of the share of their answers that were hits.")
    low: float = Field(description="With `high`, Wilson's 95 % interval over users; wider than need be where users get several answers.")
    high: float = Field(description="Its upper end.")

    @classmethod
    def of(cls, stretch: Stretch) -> Self:
        low, high = stretch.bounds
        counts = {"users": stretch.sample.users, "answers": stretch.sample.answers, "hits": stretch.sample.hits}
        return cls(since=stretch.since, until=stretch.until, hit_rate=stretch.sample.mean, low=low, high=high, **counts)


class VersionLife(BaseModel):
    version: int
    points: list[LifePoint] = Field(description="The oldest first; stretches without an answer are left out.")
    last: LifePoint | None = Field(description=LAST)

    @classmethod
    def of(cls, version: int, line: Sequence[Stretch]) -> Self:
        return cls(version=version, points=[LifePoint.of(stretch) for stretch in line], last=last_of(line))


def last_of(line: Sequence[Stretch]) -> LifePoint | None:
    stretch = telling(line)
    return LifePoint.of(stretch) if stretch else None


class LifeView(BaseModel):
    since: AwareDatetime = Field(description="Where the first stretch begins.")
    until: AwareDatetime = Field(description="Where the last one ends at the latest.")
    every: float = Field(description="How long a stretch is, in seconds: a step of the clock that makes about as many as were asked for.")
    newest: AwareDatetime | None = Field(description="The newest answer of the version that serves.")
    versions: list[VersionLife] = Field(description="Those that answered in this time.")
    left_out: int = Field(description=f"Versions that answered in it as well: at most {MOST_VERSIONS} are given, those that were last.")

    @classmethod
    def of(cls, life: Life) -> Self:
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
    points: Annotated[int, Query(ge=1, le=MOST_STRETCHES, description="About so many stretches of time.")] = 60,
) -> LifeView:
    """Returns hit rates by version in stretches of equal length, each with its 95 % interval over users. Answers whose attribution window
    hasn't closed are left out."""
    parts.recommenders.get(name)
    return LifeView.of(parts.life(name, LifeQuery(points, since, until, None if window is None else span("window", window))))
