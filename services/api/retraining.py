"""Drift of a serving version, and retraining on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from services.api.access import RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.rate_limits import RUN
from services.api.state_requests import Because, ask
from shared.contracts.retraining import DriftTrigger
from shared.domain.access import Role
from shared.domain.drift.alarm_decision import AlarmMemory
from shared.domain.drift.reading import DriftReading
from shared.domain.errors import Conflict, NotFound, Unavailable
from shared.domain.retrainer import ANSWERS
from shared.domain.triggers import RetrainerStatus
from shared.ports import Recommender

room = RoleRouter("monitoring")


class HeldView(BaseModel):
    trigger: str
    said: str = Field(description="Why the trigger would have fired.")
    by: str = Field(description="What held the trigger back.")
    since: datetime
    dropped: bool = Field(description="Whether a due time of the schedule was dropped: it starts no run any more.")


class RetrainerView(BaseModel):
    state: str
    reason: str
    run: str | None
    until: datetime | None = Field(description="End of the cooldown.")
    held: list[HeldView] = Field(description="Triggers that would have fired, and what held them back.")

    @classmethod
    def of(cls, status: RetrainerStatus) -> RetrainerView:
        views = [HeldView.model_validate(entry, from_attributes=True) for entry in status.held]
        return cls(state=status.state, reason=status.reason, run=status.run, until=status.until, held=views)


class MovedView(BaseModel):
    value: str = Field(description="Value of the feature.")
    before: float = Field(description="Share in the version's first days; for scores and the hit rate, the value then.")
    after: float = Field(description="Share, or value, of the newest events.")


class ReadingView(BaseModel):
    detector: str = Field(description="Detector: psi, new, nulls or scores of positives, or the hit rate.")
    feature: str = Field(description="Feature that was measured.")
    size: float = Field(description="Size of the change, without the part that chance explains.")
    threshold: float | None = Field(description="Size from which a change counts; null if the reading starts no retraining.")
    chance: float = Field(description="Probability that chance alone explains a change of this size.")
    limit: float = Field(description="Largest `chance` for which a change counts: one false alarm in 1,000 windows, over all readings.")
    users_before: int = Field(description="Number of users in the first days.")
    users_now: int = Field(description="Number of users among the newest events.")
    moved: list[MovedView] = Field(description="Values that changed most.")
    stands: bool = Field(description="Whether this is drift: beyond threshold and chance for as many consecutive looks as the spec needs.")
    since: datetime | None = Field(description="First of these consecutive looks.")
    said: str = Field(description="Reading in a sentence.")
    shares: list[MovedView] = Field(description="Shares of up to 12 values for psi, the largest changes first.")

    @classmethod
    def of(cls, reading: DriftReading, thresholds: Mapping[str, float], memory: AlarmMemory) -> ReadingView:
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
        description="`drifting` if any reading is drift. `unsure`: a reading is beyond its threshold, but chance may explain it, or it is "
        "not confirmed yet. `unknown`: there are too few positives."
    )
    version: int | None = Field(description="Version whose first days the newest positives are compared with.")
    at: datetime | None = Field(description="Time of the newest positive of the newest look; null while there are too few.")
    psi: dict[str, float] = Field(description="Population stability index by feature, less its bias; empty while there are too few events.")
    readings: list[ReadingView] = Field(description="Readings of every detector and feature: drift first, then the least likely ones.")
    said: list[str] = Field(description="Result in sentences.")
    retrainer: RetrainerView | None
    likes: int | None = Field(description="Number of positives since the version serves, while drift is unknown; null if not counted.")
    wanted: int | None = Field(description="Number of positives that the first look needs, while drift is unknown.")


@room.create("/v1/recommenders/{name}:retrain", Role.OPERATOR, status_code=202, work=RUN)
def retrain(parts: With, who: Who, name: str, why: Because = None) -> RetrainerView:
    """Starts a run by the spec's `retrain`, as soon as no other run or rollout is active."""
    spec = parts.recommenders.get(name).spec
    if spec.retrain.mode == "warm" and parts.routes.get(name) is None:
        raise Conflict(f"recommender '{name}' serves no version yet, and a warm retraining starts from one: start a full run")
    if _retrainer(parts, name) is None:
        raise Unavailable(f"the retrainer of '{name}' is being created: try again in a moment")
    return RetrainerView.of(ask(parts, who, parts.retrainers, ANSWERS, "retrainer", name, "retrain", why).status)


@room.get("/v1/recommenders/{name}/drift", Role.VIEWER)
def get_drift(parts: With, name: str) -> Drift:
    """Returns which features have moved since the version's first days: how, since when, and with what certainty."""
    return drift_of(parts, parts.recommenders.get(name))


def drift_of(parts: ControlParts, recommender: Recommender) -> Drift:
    name, trigger = recommender.name, recommender.spec.retrain.drift
    look, retrainer = parts.drift(name), _retrainer(parts, name)
    memory = retrainer.drift if retrainer and look and retrainer.drift.version == look.version else AlarmMemory()
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
        return ["too few positives or users for two separate windows: drift is not known yet"]
    standing = [f"{reading.said}; since {reading.since:%Y-%m-%d %H:%M:%S} UTC" for reading in readings if reading.stands]
    beyond = [reading for reading in readings if _beyond(reading) and not reading.stands]
    coming = [
        f"{reading.said}; {'not confirmed yet' if reading.chance <= reading.limit else 'chance may explain it'}" for reading in beyond
    ]
    sentences = standing + coming or [f"no drift: the least likely of {len(readings)} readings is {readings[0].said}"]
    return sentences if watched else [*sentences, "no retraining starts: the spec has no drift trigger"]


def _retrainer(parts: ControlParts, name: str) -> RetrainerStatus | None:
    try:
        return parts.retrainers.get(name).status
    except NotFound:
        return None
