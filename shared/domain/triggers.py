"""Triggers of a retraining: the plan of the spec, the observed data, and the finding of each trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.backoff import FOLLOW_UP
from shared.domain.cron import Cron, zone
from shared.domain.drift.alarm_decision import NOTHING_YET, AlarmMemory
from shared.domain.drift.reading import DriftLook
from shared.domain.machine import Request
from shared.domain.warm_or_full import USUAL, FullRunLimits, RequestedMode, TrainingHistory

DAY = timedelta(days=1)
PUNCTUAL = timedelta(minutes=1)
"""Maximum delay of a due time that still counts as on time, with `misfire: skip`."""


@dataclass(frozen=True)
class Schedule:
    cron: Cron
    zone: str
    mode: RequestedMode
    misfire: Literal["run_once", "skip"] = "run_once"
    grace: timedelta | None = None

    @property
    def key(self) -> str:
        return f"{self.cron.text} ({self.zone})"

    def last(self, after: datetime, now: datetime) -> datetime | None:
        return self.cron.last_until(after, now, zone(self.zone))

    def next(self, now: datetime) -> datetime:
        return self.cron.next_after(now, zone(self.zone))

    @property
    def allowed(self) -> timedelta | None:
        """Maximum age of a due time that still starts a run."""
        return PUNCTUAL if self.grace is None and self.misfire == "skip" else self.grace


@dataclass(frozen=True)
class RetrainPlan:
    """Retraining settings of the spec; a trigger's own mode overrides `mode`."""

    mode: RequestedMode
    cooldown: timedelta
    drift: Mapping[str, float] | None = None
    """Size from which each detector's reading counts."""
    looks: int = 3
    """Consecutive looks that a reading needs."""
    drift_mode: RequestedMode | None = None
    kpi: Mapping[str, float] | None = None
    """Size from which each rate detector's reading counts."""
    kpi_mode: RequestedMode = "full"
    new_events: int | None = None
    new_events_mode: RequestedMode | None = None
    new_data: timedelta | None = None
    new_data_mode: RequestedMode | None = None
    alerts: frozenset[str] = frozenset()
    alert_mode: RequestedMode | None = None
    schedule: Schedule | None = None
    max_per_day: int | None = None
    give_up_after: int = 3
    follow_up: tuple[timedelta, ...] = ()
    """Delays of the follow-up retrainings after a promotion that a measurement triggered."""
    auto: FullRunLimits = USUAL
    """Rule of the mode `auto`."""

    @property
    def chooses(self) -> bool:
        """Whether any of its runs may be `auto`."""
        modes = (self.mode, self.drift_mode, self.kpi_mode, self.new_events_mode, self.new_data_mode, self.alert_mode)
        return "auto" in modes or (self.schedule is not None and self.schedule.mode == "auto")


@dataclass(frozen=True)
class Firing:
    at: datetime
    trigger: str
    run: str


@dataclass(frozen=True)
class HeldTrigger:
    """Trigger that would have fired, and what held it back."""

    trigger: str
    said: str
    by: str
    since: datetime
    dropped: bool = False
    """Whether the due time was dropped, so that it starts no run."""
    key: str = ""


@dataclass(frozen=True)
class RetrainerStatus:
    state: str = "watching"
    reason: str = ""
    run: str | None = None
    until: datetime | None = None
    fired: int = 0
    schedule: str = ""
    """Schedule that `settled` belongs to."""
    settled: datetime | None = None
    """Due times up to this time had their run or were dropped."""
    firings: tuple[Firing, ...] = ()
    """Firings of the 24 hours before the newest one."""
    held: tuple[HeldTrigger, ...] = ()
    alerts: tuple[str, ...] = ()
    """Newest alerts that started a retraining."""
    drift: AlarmMemory = NOTHING_YET
    kpi: AlarmMemory = NOTHING_YET
    fruitless: int = 0
    """Consecutive retrainings that, as far as known, have not helped."""
    calm_after: datetime | None = None
    """If no trigger fires at this time, the retrainings have helped."""
    alerted: datetime | None = None
    follow: tuple[datetime, ...] = ()
    """Due times of the follow-ups of the last measured retraining."""


@dataclass(frozen=True)
class RetrainerObservation:
    request: Request | None = None
    busy: str | None = None
    """Run or rollout that a retraining has to wait for."""
    serving: bool = False
    version: int = 0
    """Serving version; 0: not read."""
    ended: str | None = None
    """Result of the active retraining, if it has ended."""
    promoted: bool = False
    """Whether its version serves."""
    drift: DriftLook | None = None
    """Newest looks; None if there is too little data."""
    kpi: DriftLook | None = None
    snapshot: datetime | None = None
    """Time up to which the serving version's data was read."""
    events: int | None = None
    """Events since then, counted up to the number that the triggers need."""
    applied: datetime | None = None
    """Time of the spec's last change."""
    gone: bool = False
    """Whether the recommender was deleted."""
    past: TrainingHistory | None = None
    """Input of the mode `auto`; None if no trigger uses it."""


@dataclass(frozen=True)
class TriggerReading:
    """Value that a trigger observed, and whether it fires."""

    trigger: str
    fires: bool
    mode: RequestedMode
    summary: str
    value: float | None = None
    threshold: float | None = None
    due: datetime | None = None


def findings(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> tuple[TriggerReading, ...]:
    """Returns the finding of each trigger of the plan, by priority."""
    return tuple(
        finding
        for finding in (
            _kpi(status, observation, plan),
            _scheduled(status, observation, plan, now),
            _drift(status, observation, plan),
            _counted(observation, plan),
            _aged(observation, plan, now),
            _following(status, plan, now),
        )
        if finding is not None
    )


def recent(firings: Sequence[Firing], now: datetime) -> tuple[Firing, ...]:
    """Returns the firings of the last 24 hours."""
    return tuple(firing for firing in firings if firing.at > now - DAY)


def _kpi(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan) -> TriggerReading | None:
    if not plan.kpi:
        return None
    counts = next((alarm for alarm in status.kpi.moved if alarm.reading.detector in plan.kpi), None)
    readings = [reading for reading in observation.kpi.readings if reading.detector in plan.kpi] if observation.kpi else []
    shown = counts.reading if counts else min(readings, key=lambda reading: reading.chance, default=None)
    if shown is None:
        waits = (observation.kpi.note if observation.kpi else "") or "too few answers yet"
        return TriggerReading("kpi", False, plan.kpi_mode, waits, None, -next(iter(plan.kpi.values())))
    threshold = plan.kpi[shown.detector]
    summary = f"{shown.sentence()} (threshold {-threshold:+.0%})" if threshold else shown.sentence()
    return TriggerReading("kpi", counts is not None, plan.kpi_mode, summary, -shown.size, -threshold)


def _drift(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan) -> TriggerReading | None:
    if not plan.drift:
        return None
    mode = plan.drift_mode or plan.mode
    counts = status.drift.moved
    if counts:
        first = counts[0]
        more = f", and {len(counts) - 1} more" if len(counts) > 1 else ""
        threshold = plan.drift[first.reading.detector]
        summary = f"{first.reading.sentence()} (threshold {threshold:g}), since {said_at(first.since)}{more}"
        return TriggerReading("drift", True, mode, summary, first.reading.size, threshold)
    watched = [reading for reading in observation.drift.readings if reading.detector in plan.drift] if observation.drift else []
    if not watched:
        waits = (observation.drift.note if observation.drift else "") or "too few events yet"
        return TriggerReading("drift", False, mode, waits, None, next(iter(plan.drift.values())))
    farthest = max(watched, key=lambda reading: reading.size / plan.drift[reading.detector])  # type: ignore[index]
    threshold = plan.drift[farthest.detector]
    return TriggerReading("drift", False, mode, f"{farthest.sentence()} (threshold {threshold:g})", farthest.size, threshold)


def _scheduled(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> TriggerReading | None:
    if plan.schedule is None:
        return None
    mode: RequestedMode = (
        plan.schedule.mode if observation.serving or status.state == "retraining" else "full"
    )  # a warm run needs a serving version
    settled = status.settled is not None and status.schedule == plan.schedule.key
    due = plan.schedule.last(status.settled, now) if settled and status.settled is not None else None
    if due is None:
        return TriggerReading("schedule", False, mode, f"schedule {plan.schedule.key}: not due")
    return TriggerReading("schedule", True, mode, f"schedule {plan.schedule.key}: due {said_at(due)}", due=due)


_NO_CUT = "the serving version has no data snapshot"


def _counted(observation: RetrainerObservation, plan: RetrainPlan) -> TriggerReading | None:
    if plan.new_events is None:
        return None
    summary = _NO_CUT
    if observation.events is not None and observation.snapshot is not None:
        summary = f"new events: {observation.events} since {said_at(observation.snapshot)} (threshold {plan.new_events})"
    fires = observation.events is not None and observation.events >= plan.new_events
    return TriggerReading("new_events", fires, plan.new_events_mode or plan.mode, summary, observation.events, plan.new_events)


def _aged(observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> TriggerReading | None:
    if plan.new_data is None:
        return None
    mode, threshold = plan.new_data_mode or plan.mode, plan.new_data.total_seconds()
    if observation.events is None or observation.snapshot is None:
        return TriggerReading("new_data", False, mode, _NO_CUT, None, threshold)
    age = now - observation.snapshot
    there = "some" if observation.events else "none"
    summary = f"new data: {there} since {said_at(observation.snapshot)}, {spoken(age)} ago (threshold {spoken(plan.new_data)})"
    return TriggerReading("new_data", age >= plan.new_data and observation.events > 0, mode, summary, age.total_seconds(), threshold)


def _following(status: RetrainerStatus, plan: RetrainPlan, now: datetime) -> TriggerReading | None:
    if not plan.follow_up:
        return None
    if not status.follow:
        return TriggerReading(FOLLOW_UP, False, plan.mode, "nothing to follow up")
    due = status.follow[0]
    fires = due <= now
    summary = f"follow-up of the last retraining by drift, KPI or alert: {'due' if fires else 'not before'} {said_at(due)}"
    return TriggerReading(FOLLOW_UP, fires, plan.mode, summary)


def spoken(span: timedelta) -> str:
    """Formats whole seconds as `1 day, 2:00:00`."""
    return str(timedelta(seconds=span // timedelta(seconds=1)))


def said_at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
