"""Drift of a serving version, and retraining on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.dependencies import Parts, With
from services.api.rate_limits import RUN
from services.api.state_requests import Because, ask
from shared.contracts.retraining import DriftTrigger
from shared.domain.access import Role
from shared.domain.drift.alarm_decision import Memory
from shared.domain.drift.reading import Reading
from shared.domain.errors import Conflict, NotFound, Unavailable
from shared.domain.retrainer import ANSWERS
from shared.domain.triggers import RetrainerStatus
from shared.ports import Recommender

room = Room("monitoring")


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
        views = [HeldView.model_validate(entry, from_attributes=True) for entry in status.held]
        return cls(state=status.state, reason=status.reason, run=status.run, until=status.until, held=views)


class MovedView(BaseModel):
    value: str = Field(description="The feature's value.")
    before: float = Field(description="Its share in the version's first days; of scores and hit rates, what they were.")
    after: float = Field(description="The same of the newest ones.")


class ReadingView(BaseModel):
    detector: str = Field(description="What was measured: psi, new, nulls or scores of likes, or the hit rate.")
    feature: str = Field(description="Of what.")
    size: float = Field(description="How far it has moved, less what chance explains.")
    threshold: float | None = Field(description="From which size on it counts; null: it is watched and starts nothing.")
    chance: float = Field(description="How often chance alone moves it so far.")
    limit: float = Field(description="It counts where chance is no more than this: all readings of 1,000 windows together are wrong once.")
    users_before: int = Field(description="Users on the side of the first days.")
    users_now: int = Field(description="Users on the newest side.")
    moved: list[MovedView] = Field(description="The values that moved most.")
    stands: bool = Field(description="Whether it counts: beyond threshold and chance for so many looks in a row as the spec asks for.")
    since: datetime | None = Field(description="The first of the looks in a row that say so.")
    said: str = Field(description="The same in a sentence.")
    shares: list[MovedView] = Field(description="Of psi: the shares of up to 12 values, those that moved most first.")

    @classmethod
    def of(cls, reading: Reading, thresholds: Mapping[str, float], memory: Memory) -> ReadingView:
        alarm = next((alarm for alarm in memory.standing if alarm.reading.key == reading.key), None)
        return cls(
            detector=reading.detector,
            feature=reading.column,
            size=reading.size,
            threshold=thresholds.get(reading.detector),
            chance=reading.chance,
            limit=reading.limit,
            users_before=reading.users[0],
            users_now=reading.users[1],
            moved=[MovedView.model_validate(value, from_attributes=True) for value in reading.moved],
            stands=alarm is not None and alarm.stands,
            since=alarm.since if alarm else None,
            said=reading.sentence(),
            shares=[MovedView.model_validate(value, from_attributes=True) for value in reading.shares],
        )


DriftState = Literal["unknown", "steady", "unsure", "drifting"]


class Drift(BaseModel):
    state: DriftState = Field(
        description="Whether any reading stands. `unsure`: one is beyond its threshold, but chance may explain it, or it does not stand "
        "yet. `unknown`: there are too few likes."
    )
    version: int | None = Field(description="Which version's first days the newest likes are held against.")
    at: datetime | None = Field(description="The newest like of the newest look; null while there are too few.")
    psi: dict[str, float] = Field(description="Population stability index by feature, less its bias; empty while there are too few events.")
    readings: list[ReadingView] = Field(description="Of every detector and feature, those that stand first, then the least likely.")
    said: list[str] = Field(description="What it comes to, in sentences.")
    retrainer: RetrainerView | None
    likes: int | None = Field(description="While nothing is known yet: likes since the version serves; null where they aren't counted.")
    wanted: int | None = Field(description="While nothing is known yet: likes that the first look takes.")


@room.create("/v1/recommenders/{name}:retrain", Role.OPERATOR, status_code=202, work=RUN)
def retrain(parts: With, who: Who, name: str, why: Because = None) -> RetrainerView:
    """Starts a run by the spec's `retrain`, as soon as nothing else is active."""
    spec = parts.recommenders.get(name).spec
    if spec.retrain.mode == "warm" and parts.routes.get(name) is None:
        raise Conflict(f"recommender '{name}' serves no version yet that a warm retraining could start from: start a full run")
    if _retrainer(parts, name) is None:
        raise Unavailable(f"the retrainer of '{name}' is just being made: try again in a moment")
    return RetrainerView.of(ask(parts, who, parts.retrainers, ANSWERS, "retrainer", name, "retrain", why).status)


@room.get("/v1/recommenders/{name}/drift", Role.VIEWER)
def get_drift(parts: With, name: str) -> Drift:
    """Returns which features have moved since the version's first days: how, since when, and with what certainty."""
    return drift_of(parts, parts.recommenders.get(name))


def drift_of(parts: Parts, recommender: Recommender) -> Drift:
    name, trigger = recommender.name, recommender.spec.retrain.drift
    look, retrainer = parts.drift(name), _retrainer(parts, name)
    memory = retrainer.drift if retrainer and look and retrainer.drift.version == look.version else Memory()
    thresholds = (trigger or DriftTrigger()).thresholds()
    readings = [ReadingView.of(reading, thresholds, memory) for reading in look.readings] if look else []
    readings.sort(key=lambda reading: (not reading.stands, reading.chance, -reading.size, reading.detector, reading.feature))
    likes, wanted = (parts.liked(name) if look is None else None) or (None, None)
    return Drift(
        state=_judge(readings),
        version=look.version if look and readings else None,
        at=look.at if look and readings else None,
        psi={reading.feature: reading.size for reading in readings if reading.detector == "psi"},
        readings=readings,
        said=[look.note] if look and look.note else _sentences(readings, trigger is not None),
        retrainer=RetrainerView.of(retrainer) if retrainer else None,
        likes=likes,
        wanted=wanted,
    )


def _judge(readings: Sequence[ReadingView]) -> DriftState:
    if not readings:
        return "unknown"
    if any(reading.stands for reading in readings):
        return "drifting"
    return "unsure" if any(map(_beyond, readings)) else "steady"


def _beyond(reading: ReadingView) -> bool:
    return reading.stands or (reading.threshold is not None and reading.size >= reading.threshold)


def _sentences(readings: Sequence[ReadingView], watched: bool) -> list[str]:
    if not readings:
        return ["too few likes, or users, for two windows apart: nothing is known of drift yet"]
    standing = [f"{reading.said}; so since {reading.since:%Y-%m-%d %H:%M:%S} UTC" for reading in readings if reading.stands]
    beyond = [reading for reading in readings if _beyond(reading) and not reading.stands]
    coming = [
        f"{reading.said}; {'it does not stand yet' if reading.chance <= reading.limit else 'that is too often to tell'}"
        for reading in beyond
    ]
    sentences = standing + coming or [f"nothing has moved: the least likely of {len(readings)} readings is {readings[0].said}"]
    return sentences if watched else [*sentences, "no retraining follows: the spec has no drift trigger"]


def _retrainer(parts: Parts, name: str) -> RetrainerStatus | None:
    try:
        return parts.retrainers.get(name).status
    except NotFound:
        return None
