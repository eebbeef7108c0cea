"""KPIs: what the answers of each version earned; now, by variant and slice, and over time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Self

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import Room
from services.api.dependencies import With
from services.monitor.earnings import MOST_POINTS, Earning, Point, VersionEarning
from shared.contracts.quantities import parse_duration
from shared.domain.access import Role
from shared.domain.earned import MILLIONTHS
from shared.domain.errors import Invalid
from shared.domain.slices import KNOWN, NEW

room = Room("monitoring")

_LONGEST = timedelta(days=366)
Span = Annotated[str, Query(max_length=20, examples=["30m", "1h"])]


class Rates(BaseModel):
    answers: int
    hits: int
    hit_rate: float
    conversions: int = Field(description="Answers with an event of a kind that is a conversion.")
    conversion: float = Field(description="Conversions by answers.")
    revenue: float = Field(description="Of the events that react to them.")
    revenue_per_answer: float = Field(description="Revenue by answers.")
    engagement: float = Field(description="The weights of those events, by answers.")

    @classmethod
    def of(cls, earning: Earning, **more: object) -> Self:
        earned = earning.earned
        rates = {
            "answers": earned.answers,
            "hits": earned.hits,
            "hit_rate": earned.hit_rate,
            "conversions": earned.conversions,
            "conversion": earned.conversion,
            "revenue": earned.revenue / MILLIONTHS,
            "revenue_per_answer": earned.revenue_per_answer,
            "engagement": earning.engagement,
        }
        return cls.model_validate(rates | more)


class Kpi(Rates):
    version: int
    kinds: dict[str, int] = Field(description="Those events by kind, positive ones alone.")
    click_rate: list[float] = Field(description="By place, the first one first: the share of the answers whose item there was clicked.")
    variants: dict[str, Rates] = Field(description="The same of the answers that it gave as `stable`, and as `candidate`.")
    slices: dict[str, Rates] = Field(
        description=f"The same by slice of the spec (`monitor.slices`), as it was when the answer was given, and of `{NEW}` and `{KNOWN}`."
    )
    looked: int = Field(description="Answers that the next two rest on: the newest ones, at most 5,000.")
    coverage: float | None = Field(description="The share of its catalogue that they showed; null where its files can't be read.")
    novelty: float | None = Field(
        description="The mean, over all that they showed, of -log2 of the item's share of the newest 20,000 positives, where each item has "
        "one more than it has: bits of surprise."
    )

    @classmethod
    def of_version(cls, version: int, earning: VersionEarning) -> Kpi:
        return cls.of(
            earning,
            version=version,
            kinds=dict(earning.earned.kinds),
            click_rate=[rate for _, rate in sorted(earning.earned.click_rates().items())],
            variants=_rates(earning.variants),
            slices=_rates(earning.slices),
            looked=earning.spread.looked,
            coverage=earning.spread.coverage,
            novelty=earning.spread.novelty,
        )


class Kpis(BaseModel):
    window: str
    versions: list[Kpi] = Field(description="Those with answers in the newest stretch of time whose attribution window has closed.")


class KpiPoint(Rates):
    ends: datetime = Field(description="Of the window, which doesn't hold its end.")

    @classmethod
    def at(cls, point: Point) -> KpiPoint:
        return cls.of(point.earning, ends=point.ends)


class VersionSeries(BaseModel):
    version: int
    points: list[KpiPoint] = Field(description="The oldest first; windows without an answer are left out.")


class KpiSeries(BaseModel):
    window: str
    step: str = Field(description="As it was asked for.")
    versions: list[VersionSeries] = Field(description="Those with answers in any of the windows.")


@room.get("/v1/recommenders/{name}/kpis", Role.VIEWER)
def get_kpis(parts: With, name: str, window: Span = "1h") -> Kpis:
    """Returns what the answers of each version earned."""
    parts.recommenders.get(name)
    earnings = parts.kpis(name, span("window", window))
    return Kpis(window=window, versions=[Kpi.of_version(number, earning) for number, earning in sorted(earnings.items())])


@room.get("/v1/recommenders/{name}/kpis/series", Role.VIEWER)
def get_kpi_series(
    parts: With,
    name: str,
    window: Span = "1h",
    step: Span = "5m",
    points: Annotated[int, Query(ge=1, le=MOST_POINTS, description="So many windows.")] = 12,
) -> KpiSeries:
    """Returns KPIs in sliding windows that end a step apart, the last at the newest whole step whose attribution window has closed. A
    window is a whole number of steps; window and points are at most 2,000 steps together."""
    parts.recommenders.get(name)
    series = parts.series(name, span("window", window), span("step", step), points)
    made = [VersionSeries(version=number, points=[KpiPoint.at(point) for point in line]) for number, line in sorted(series.items()) if line]
    return KpiSeries(window=window, step=step, versions=made)


def _rates(earnings: Mapping[str, Earning]) -> dict[str, Rates]:
    return {name: Rates.of(earning) for name, earning in earnings.items()}


def span(name: str, text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{name}: {error}") from None
    if not timedelta(0) < duration <= _LONGEST:
        raise Invalid(f"{name}: expected more than nothing and at most {_LONGEST.days} days, got '{text}'")
    return duration
