"""What the world says of a serving version, and retraining by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.asking import Because, ask
from services.api.parts import Parts, With
from services.monitor.earnings import Earning
from shared.contracts.quantities import parse_duration
from shared.domain.access import Role
from shared.domain.earned import MILLIONTHS
from shared.domain.errors import Conflict, Invalid, NotFound, Unavailable
from shared.domain.retrainer import ANSWERS, RetrainerStatus

room = Room("monitoring")

_LONGEST = timedelta(days=366)


class HeldView(BaseModel):
    trigger: str
    said: str = Field(description="Why it would have fired.")
    by: str = Field(description="What held it back.")
    since: datetime
    dropped: bool = Field(description="Whether it was let go: a due time that starts no run any more.")


class RetrainerView(BaseModel):
    state: str
    reason: str
    run: str | None
    until: datetime | None = Field(description="The end of the cooldown.")
    held: list[HeldView] = Field(description="Triggers that would have fired, and what held them back.")

    @classmethod
    def of(cls, status: RetrainerStatus) -> RetrainerView:
        held = [HeldView.model_validate(one, from_attributes=True) for one in status.held]
        return cls(state=status.state, reason=status.reason, run=status.run, until=status.until, held=held)


class Drift(BaseModel):
    psi: dict[str, float] = Field(description="Population stability index by feature; empty while there are too few events.")
    retrainer: RetrainerView | None


class Kpi(BaseModel):
    version: int
    answers: int
    hits: int
    hit_rate: float
    conversions: int = Field(description="Answers with an event of a kind that is a conversion.")
    conversion: float = Field(description="Conversions by answers.")
    revenue: float = Field(description="Of the events that react to them.")
    revenue_per_answer: float = Field(description="Revenue by answers.")
    engagement: float = Field(description="The weights of those events, by answers.")
    kinds: dict[str, int] = Field(description="Those events by kind, positive ones alone.")
    click_rate: list[float] = Field(description="By place, the first one first: the share of the answers whose item there was clicked.")

    @classmethod
    def of(cls, version: int, one: Earning) -> Kpi:
        earned = one.earned
        return cls(
            version=version,
            answers=earned.answers,
            hits=earned.hits,
            hit_rate=earned.hit_rate,
            conversions=earned.conversions,
            conversion=earned.conversion,
            revenue=earned.revenue / MILLIONTHS,
            revenue_per_answer=earned.revenue_per_answer,
            engagement=one.engagement,
            kinds=dict(earned.kinds),
            click_rate=[rate for _, rate in sorted(earned.click_rates().items())],
        )


class Kpis(BaseModel):
    window: str
    versions: list[Kpi] = Field(description="Those with answers in the newest stretch of time whose attribution window has closed.")


@room.create("/v1/recommenders/{name}:retrain", Role.OPERATOR, status_code=202)
def retrain(parts: With, who: Who, name: str, why: Because = None) -> RetrainerView:
    """A run as the spec's `retrain` says, as soon as nothing else is under way."""
    spec = parts.recommenders.get(name).spec
    if spec.retrain.mode == "warm" and parts.routes.get(name) is None:
        raise Conflict(f"recommender '{name}' serves no version yet that a warm retraining could start from: start a full run")
    if _retrainer(parts, name) is None:
        raise Unavailable(f"the retrainer of '{name}' is just being made: try again in a moment")
    return RetrainerView.of(ask(parts, who, parts.retrainers, ANSWERS, "retrainer", name, "retrain", why).status)


@room.get("/v1/recommenders/{name}/drift", Role.VIEWER)
def get_drift(parts: With, name: str) -> Drift:
    """How far the world has moved from what the serving version was trained on."""
    parts.recommenders.get(name)
    return Drift(psi=dict(parts.drift(name)), retrainer=_retrainer(parts, name))


@room.get("/v1/recommenders/{name}/kpis", Role.VIEWER)
def get_kpis(parts: With, name: str, window: Annotated[str, Query(max_length=20, examples=["30m", "1h"])] = "1h") -> Kpis:
    """What the answers of each version earned."""
    parts.recommenders.get(name)
    found = parts.kpis(name, _window(window))
    return Kpis(window=window, versions=[Kpi.of(number, one) for number, one in sorted(found.items())])


def _retrainer(parts: Parts, name: str) -> RetrainerView | None:
    try:
        return RetrainerView.of(parts.retrainers.get(name).status)
    except NotFound:
        return None


def _window(said: str) -> timedelta:
    try:
        window = parse_duration(said)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"window: {error}") from None
    if not timedelta(0) < window <= _LONGEST:
        raise Invalid(f"window: expected more than nothing and at most {_LONGEST.days} days, got '{said}'")
    return window
