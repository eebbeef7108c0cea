"""KPIs: what the answers of each version earned; now, by variant and slice, and over time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Self

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import RoleRouter
from services.api.dependencies import With
from services.monitor.earnings import MOST_POINTS, Earning, EarningPoint, VersionEarning
from services.monitor.empty_answers import LEAST, WINDOW
from shared.contracts.quantities import parse_duration, write_duration
from shared.domain.access import Role
from shared.domain.earned import MILLIONTHS
from shared.domain.errors import Invalid
from shared.domain.slices import KNOWN, NEW

room = RoleRouter("monitoring")

_LONGEST = timedelta(days=366)
Span = Annotated[str, Query(max_length=20, examples=["30m", "1h"])]


class Rates(BaseModel):
    answers: int
    hits: int
    hit_rate: float
    conversions: int = Field(description="Answers with a conversion.")
    conversion: float = Field(description="Conversions divided by answers.")
    revenue: float = Field(description="Revenue of the events that are attributed to the answers.")
    revenue_per_answer: float = Field(description="Revenue divided by answers.")
    engagement: float = Field(description="Sum of the weights of these events, divided by answers.")

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
    kinds: dict[str, int] = Field(description="Number of positives by kind.")
    click_rate: list[float] = Field(description="Share of answers whose item was clicked, by place from the first one.")
    variants: dict[str, Rates] = Field(description="The same figures for answers as `stable` and as `candidate`.")
    slices: dict[str, Rates] = Field(
        description=f"The same figures by slice of the spec (`monitor.slices`) at the time of the answer, and of `{NEW}` and `{KNOWN}`."
    )
    looked: int = Field(description="Number of answers behind `coverage` and `novelty`: the newest ones, at most 5,000.")
    coverage: float | None = Field(description="Share of the catalogue that these answers showed; null if its files cannot be read.")
    novelty: float | None = Field(
        description="Mean, over the items that these answers showed, of -log2 of the item's share of the newest 20,000 positives, in bits. "
        "Each item counts one positive more."
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
    versions: list[Kpi] = Field(description="Versions with answers in the newest window of time whose attribution window has closed.")


class EmptyShare(BaseModel):
    window: str
    answers: int = Field(description="Answers in the window, without trials.")
    empty: int = Field(description="Answers without items, because the filters left none.")
    share: float | None = Field(description=f"Empty answers divided by answers; null for fewer than {LEAST} answers.")
    limit: float = Field(description="Largest share that the spec allows (`monitor.empty_answers`).")
    exceeds: bool = Field(description="Whether the share is above the limit.")


class KpiPoint(Rates):
    ends: datetime = Field(description="End of the window, exclusive.")

    @classmethod
    def at(cls, point: EarningPoint) -> KpiPoint:
        return cls.of(point.earning, ends=point.ends)


class VersionSeries(BaseModel):
    version: int
    points: list[KpiPoint] = Field(description="Points, the oldest first; windows without an answer are left out.")


class KpiSeries(BaseModel):
    window: str
    step: str = Field(description="Step of the request.")
    versions: list[VersionSeries] = Field(description="Versions with answers in any of the windows.")


@room.get("/v1/recommenders/{name}/kpis", Role.VIEWER)
def get_kpis(parts: With, name: str, window: Span = "1h") -> Kpis:
    """Returns what the answers of each version earned."""
    parts.recommenders.get(name)
    earnings = parts.kpis(name, span("window", window))
    return Kpis(window=window, versions=[Kpi.of_version(number, earning) for number, earning in sorted(earnings.items())])


@room.get("/v1/recommenders/{name}/kpis/empty", Role.VIEWER)
def get_empty_answers(parts: With, name: str) -> EmptyShare:
    """Returns the share of recent answers without items, because the filters left none."""
    parts.recommenders.get(name)
    look = parts.empty(name)
    window = write_duration(WINDOW)
    return EmptyShare(
        window=window, answers=look.counts.answers, empty=look.counts.empty, share=look.share, limit=look.limit, exceeds=look.exceeds
    )


@room.get("/v1/recommenders/{name}/kpis/series", Role.VIEWER)
def get_kpi_series(
    parts: With,
    name: str,
    window: Span = "1h",
    step: Span = "5m",
    points: Annotated[int, Query(ge=1, le=MOST_POINTS, description="Number of windows.")] = 12,
) -> KpiSeries:
    """Returns KPIs in sliding windows that end a step apart, the last at the newest whole step whose attribution window has closed. A
    window is a whole number of steps; window and points together are at most 2,000 steps."""
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
        raise Invalid(f"{name}: expected more than 0 and at most {_LONGEST.days} days, got '{text}'")
    return duration
