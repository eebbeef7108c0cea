"""Triggers of retraining: what each sees now, what holds it back, and its history."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from services.api.access import RoleRouter
from services.api.dependencies import With
from services.api.paging import Page, Pages
from services.api.retraining import RetrainerView
from services.api.views import EventView
from shared.contracts.plans import retrain_plan
from shared.domain.access import Role
from shared.domain.cron import zone
from shared.domain.errors import NotFound
from shared.domain.retrainer import blocked, chosen
from shared.domain.triggers import RetrainerObservation, RetrainerStatus, RetrainPlan, Schedule, TriggerReading, findings, recent

room = RoleRouter("monitoring")


class TriggerView(BaseModel):
    trigger: str
    mode: str = Field(description="Mode of the retraining.")
    fires: bool = Field(description="Whether the trigger fires now.")
    found: str
    value: float | None
    threshold: float | None
    held_by: str | None = Field(description="What holds the trigger back; null if it could start a run now.")


class ScheduleView(BaseModel):
    cron: str
    timezone: str
    mode: str
    misfire: str
    next: datetime = Field(description="Next due time in UTC.")
    next_local: str = Field(description="Next due time in the schedule's time zone.")

    @classmethod
    def of(cls, schedule: Schedule, now: datetime) -> ScheduleView:
        due = schedule.next(now)
        return cls(
            cron=schedule.cron.text,
            timezone=schedule.zone,
            mode=schedule.mode,
            misfire=schedule.misfire,
            next=due,
            next_local=due.astimezone(zone(schedule.zone)).isoformat(),
        )


class FiringView(BaseModel):
    at: datetime
    trigger: str
    run: str


class Triggers(BaseModel):
    retrainer: RetrainerView | None
    triggers: list[TriggerView] = Field(description="Triggers of the spec, by precedence.")
    schedule: ScheduleView | None
    max_per_day: int | None
    firings: list[FiringView] = Field(description="Retrainings of the last 24 hours, the newest first.")


@room.get("/v1/recommenders/{name}/triggers", Role.VIEWER)
def get_triggers(parts: With, name: str) -> Triggers:
    """Returns what may start a retraining, what each trigger sees now, and what holds it back."""
    plan = retrain_plan(parts.recommenders.get(name).spec)
    now = parts.clock.now()
    try:
        current = parts.retrainers.get(name).status
    except NotFound:  # the retrainer doesn't exist yet
        current = None
    status, observation = current or RetrainerStatus(), parts.watch(name)
    return Triggers(
        retrainer=RetrainerView.of(current) if current else None,
        triggers=[
            _view(finding, status, observation, plan, now) for finding in (*findings(status, observation, plan, now), *_alerts(plan))
        ],
        schedule=ScheduleView.of(plan.schedule, now) if plan.schedule else None,
        max_per_day=plan.max_per_day,
        firings=[FiringView.model_validate(firing, from_attributes=True) for firing in reversed(recent(status.firings, now))],
    )


@room.get("/v1/recommenders/{name}/triggers/history", Role.VIEWER)
def list_trigger_events(parts: With, name: str, pages: Pages) -> Page[EventView]:
    """Lists what fired and why, what was held back by what, and how retrainings ended; the newest first."""
    parts.recommenders.get(name)
    try:
        entries = parts.retrainers.latest(name, pages.more, pages.number)
    except NotFound:
        entries = ()
    return pages.page(entries, lambda entry: entry.seq, EventView.of)


def _view(
    finding: TriggerReading, status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime
) -> TriggerView:
    mode, why = chosen(finding.mode, observation, plan)
    summary = f"{finding.summary}; {why}" if why else finding.summary
    held_by = blocked(finding.trigger, status, observation, plan, now)
    return TriggerView(**vars(finding) | {"mode": mode, "found": summary, "held_by": held_by})


def _alerts(plan: RetrainPlan) -> list[TriggerReading]:
    if not plan.alerts:
        return []
    return [TriggerReading("alert", False, plan.alert_mode or plan.mode, f"waits for the alerts {', '.join(sorted(plan.alerts))}")]
