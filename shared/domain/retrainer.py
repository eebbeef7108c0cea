"""A retrainer: watches one recommender and starts a run when its schedule, a trigger, an alert or a person says so.

One retraining at a time: from the run's start to the end of its rollout, then a cooldown. What fired, or what held it back,
is always in the reason and in the history; a person waits for what is under way, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.cron import Cron, zone
from shared.domain.machine import Decision, Edge, Machine, Request

_WATCH = timedelta(seconds=1)
_REST = timedelta(seconds=5)
DAY = timedelta(days=1)
PUNCTUAL = timedelta(minutes=1)
"""How late a due time of a schedule that skips is still on time."""
KEPT_FIRINGS = 200
KEPT_ALERTS = 100

MACHINE = Machine(
    "retrainer",
    "watching",
    (
        Edge("watching", "retraining", "a trigger fired"),
        Edge("retraining", "cooling", "its run and rollout have ended"),
        Edge("cooling", "watching", "the cooldown is over"),
        Edge("cooling", "retraining", "asked"),
        *(Edge(state, "retired", "its recommender was deleted") for state in ("watching", "retraining", "cooling")),
        Edge("retired", "watching", "a recommender has its name again"),
    ),
)
ANSWERS = {"watching": frozenset({"retrain"}), "cooling": frozenset({"retrain"}), "retired": frozenset({"retrain"})}

Mode = Literal["full", "warm"]


@dataclass(frozen=True)
class Schedule:
    cron: Cron
    zone: str
    mode: Mode
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
        """How old a due time may be that still starts a run."""
        return PUNCTUAL if self.grace is None and self.misfire == "skip" else self.grace


@dataclass(frozen=True)
class RetrainPlan:
    """What may start a retraining; a trigger's own mode goes before the mode of all."""

    mode: Mode
    cooldown: timedelta
    psi: float | None = None
    drift_mode: Mode | None = None
    hit_rate: float | None = None
    hit_rate_mode: Mode = "full"
    new_events: int | None = None
    new_events_mode: Mode | None = None
    new_data: timedelta | None = None
    new_data_mode: Mode | None = None
    alerts: frozenset[str] = frozenset()
    alert_mode: Mode | None = None
    schedule: Schedule | None = None
    max_per_day: int | None = None


@dataclass(frozen=True)
class Firing:
    at: datetime
    trigger: str
    run: str


@dataclass(frozen=True)
class Held:
    """A trigger that would have fired, and what held it back."""

    trigger: str
    said: str
    by: str
    since: datetime
    dropped: bool = False
    """Whether it was let go: a due time that starts no run any more."""
    key: str = ""


@dataclass(frozen=True)
class RetrainerStatus:
    state: str = "watching"
    reason: str = ""
    run: str | None = None
    until: datetime | None = None
    fired: int = 0
    schedule: str = ""
    """The schedule that `settled` belongs to."""
    settled: datetime | None = None
    """Its due times up to here have had their run, or were let go."""
    firings: tuple[Firing, ...] = ()
    """Of the 24 hours before the newest one."""
    held: tuple[Held, ...] = ()
    alerts: tuple[str, ...] = ()
    """The newest alerts that have started a retraining."""


@dataclass(frozen=True)
class RetrainerObservation:
    request: Request | None = None
    busy: str | None = None
    """What a retraining would have to wait for: a run or a rollout under way."""
    serving: bool = False
    ended: str | None = None
    """How the retraining under way ended, if it has."""
    drift: float | None = None
    drifted: str = ""
    baseline: float | None = None
    current: float | None = None
    snapshot: datetime | None = None
    """When the serving version's data was cut."""
    events: int | None = None
    """How many events have come since; no more than the triggers ask for are counted."""
    applied: datetime | None = None
    """When the spec last changed."""
    gone: bool = False
    """Whether its recommender was deleted."""


@dataclass(frozen=True)
class StartRun:
    mode: Mode
    reason: str
    number: int
    trigger: str = "manual"
    kind: Literal["start_run"] = "start_run"


@dataclass(frozen=True)
class Finding:
    """What a trigger saw, and whether it fires."""

    trigger: str
    fires: bool
    mode: Mode
    said: str
    value: float | None = None
    threshold: float | None = None
    due: datetime | None = None


RetrainerDecision = Decision[RetrainerStatus, StartRun]


def decide(name: str, status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerDecision:
    if status.state == "retired":
        return Decision(replace(status, state="watching", reason="a recommender has this name again"), (), _WATCH)
    if status.state == "retraining" and seen.ended is not None:
        return Decision(replace(status, state="cooling", reason=seen.ended, until=now + plan.cooldown, held=_lasting(status)), (), _WATCH)
    if status.state == "cooling" and status.until is not None and now >= status.until:
        following = replace(status, state="watching", reason="the cooldown is over", until=None, run=None)
        return Decision(following, requeue_after=_WATCH)
    status = _adopted(status, seen, plan, now)
    if seen.request is not None and seen.request.verb == "alert" and seen.request.key in status.alerts:  # delivered again
        return Decision(status, requeue_after=_WATCH, consumes_request=True, note=f"{seen.request.said()}: it has had its retraining")
    found = findings(status, seen, plan, now)
    due = _due(found, status, seen, plan)
    for one in due:
        if blocked(one.trigger, status, seen, plan, now) is None and not _late(one, plan, now):
            return _fire(name, status, seen, one, now)
    known = frozenset(one.trigger for one in found) | {"manual", "alert"}
    return _held_back(replace(status, held=tuple(one for one in status.held if one.trigger in known)), seen, plan, due, now)


def retire(status: RetrainerStatus, seen: RetrainerObservation) -> RetrainerDecision:
    """Its recommender was deleted. The count of its runs goes on with whoever has the name next, so that no run's id comes twice."""
    following = status
    if status.state != "retired":
        following = RetrainerStatus("retired", "its recommender was deleted", fired=status.fired, alerts=status.alerts)
    return Decision(following, requeue_after=_REST, consumes_request=seen.request is not None)


def findings(status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> tuple[Finding, ...]:
    """What each trigger of the plan says, the first to be answered first."""
    return tuple(one for one in (_kpi(seen, plan), _scheduled(status, seen, plan, now), *_signals(seen, plan, now)) if one is not None)


def blocked(trigger: str, status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> str | None:
    """What holds a trigger back. A person waits for what is under way alone."""
    if status.state == "retraining":
        return f"run {status.run} of the last retraining, or its rollout, is under way"
    if seen.busy:
        return seen.busy
    if trigger == "manual":
        return None
    if not seen.serving and trigger != "schedule":
        return "no version serves yet"
    if status.state == "cooling" and status.until is not None and now < status.until:
        return f"it cools down until {_said(status.until)}"
    counted = [one.at for one in recent(status.firings, now) if one.trigger != "manual"]
    if plan.max_per_day is not None and len(counted) >= plan.max_per_day:
        free = sorted(counted)[len(counted) - plan.max_per_day] + DAY
        return f"{len(counted)} of {plan.max_per_day} retrainings in 24 hours, the next from {_said(free)} on"
    return None


def recent(firings: Sequence[Firing], now: datetime) -> tuple[Firing, ...]:
    """Those of the last 24 hours."""
    return tuple(one for one in firings if one.at > now - DAY)


def run_id(name: str, number: int) -> str:
    """The id of the run that a firing starts: deterministic, so that it is started once."""
    return f"{name}-retrain-{number}"


def _adopted(status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerStatus:
    """A schedule that is new, or has changed, is due only after the change."""
    key = plan.schedule.key if plan.schedule else ""
    if status.schedule == key:
        return status
    since = min(seen.applied or now, now) if key else None
    return replace(status, schedule=key, settled=since, held=tuple(one for one in status.held if one.trigger != "schedule"))


def _kpi(seen: RetrainerObservation, plan: RetrainPlan) -> Finding | None:
    if plan.hit_rate is None:
        return None
    if not seen.baseline or seen.current is None:
        return Finding("kpi", False, plan.hit_rate_mode, "too few answers yet", None, plan.hit_rate)
    change = seen.current / seen.baseline - 1
    moved = "fell" if change < 0 else "rose"
    said = f"hit rate {seen.current:.3f} {moved} by {abs(change):.1%} from {seen.baseline:.3f} (threshold {plan.hit_rate:+.0%})"
    return Finding("kpi", change <= plan.hit_rate, plan.hit_rate_mode, said, change, plan.hit_rate)


def _scheduled(status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> Finding | None:
    if plan.schedule is None:
        return None
    mode: Mode = plan.schedule.mode if seen.serving or status.state == "retraining" else "full"  # there is nothing to be warm from
    known = status.settled is not None and status.schedule == plan.schedule.key
    due = plan.schedule.last(status.settled, now) if known and status.settled is not None else None
    if due is None:
        return Finding("schedule", False, mode, f"schedule {plan.schedule.key}: not due")
    return Finding("schedule", True, mode, f"schedule {plan.schedule.key}: due {_said(due)}", due=due)


def _signals(seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> Sequence[Finding]:
    found: list[Finding] = []
    if plan.psi is not None:
        known = seen.drift is not None
        said = f"drift of {seen.drifted}: psi {seen.drift:.3f} (threshold {plan.psi:g})" if known else "too few events yet"
        found.append(
            Finding("drift", seen.drift is not None and seen.drift >= plan.psi, plan.drift_mode or plan.mode, said, seen.drift, plan.psi)
        )
    unknown = "the serving version's data was never cut"
    if plan.new_events is not None:
        said = unknown
        if seen.events is not None and seen.snapshot is not None:
            said = f"new events: {seen.events} since {_said(seen.snapshot)} (threshold {plan.new_events})"
        fires = seen.events is not None and seen.events >= plan.new_events
        found.append(Finding("new_events", fires, plan.new_events_mode or plan.mode, said, seen.events, plan.new_events))
    if plan.new_data is not None:
        threshold = plan.new_data.total_seconds()
        if seen.events is None or seen.snapshot is None:
            found.append(Finding("new_data", False, plan.new_data_mode or plan.mode, unknown, None, threshold))
        else:
            age = now - seen.snapshot
            there = "some" if seen.events else "none"
            said = f"new data: {there} since {_said(seen.snapshot)}, {_span(age)} ago (threshold {_span(plan.new_data)})"
            fires = age >= plan.new_data and seen.events > 0
            found.append(Finding("new_data", fires, plan.new_data_mode or plan.mode, said, age.total_seconds(), threshold))
    return found


def _due(found: Sequence[Finding], status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan) -> list[Finding]:
    """What wants a run now, who asked for it first. While one is under way it is the answer to what was measured before it."""
    wanted = []
    if seen.request is not None:
        trigger, mode = ("alert", plan.alert_mode or plan.mode) if seen.request.verb == "alert" else ("manual", plan.mode)
        wanted.append(Finding(trigger, True, mode if seen.serving else "full", seen.request.said()))
    measured = seen.serving and status.state != "retraining"
    return wanted + [one for one in found if one.fires and (measured or one.trigger == "schedule")]


def _late(one: Finding, plan: RetrainPlan, now: datetime) -> bool:
    allowed = plan.schedule.allowed if plan.schedule else None
    return one.due is not None and allowed is not None and now - one.due > allowed


def _fire(name: str, status: RetrainerStatus, seen: RetrainerObservation, one: Finding, now: datetime) -> RetrainerDecision:
    number = status.fired + 1
    run = run_id(name, number)
    asked = one.trigger in ("manual", "alert")
    following = replace(
        status,
        state="retraining",
        reason=one.said,
        run=run,
        fired=number,
        until=None,
        settled=one.due or status.settled,
        firings=_kept((*recent(status.firings, now), Firing(now, one.trigger, run))),
        held=tuple(held for held in _lasting(status) if held.trigger != one.trigger),
        alerts=(*status.alerts, seen.request.key)[-KEPT_ALERTS:] if one.trigger == "alert" and seen.request else status.alerts,
    )
    return Decision(following, (StartRun(one.mode, one.said, number, one.trigger),), _WATCH, consumes_request=asked)


def _held_back(
    status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, found: Sequence[Finding], now: datetime
) -> RetrainerDecision:
    """Nothing could start: who was held back, by what; written where that is new."""
    before = {one.trigger: one for one in status.held}
    after = {  # also of what fires no more: it may again
        trigger: earlier
        for trigger, earlier in before.items()
        if earlier.dropped or earlier.by == blocked(trigger, status, seen, plan, now)
    }
    settled, consumes = status.settled, False
    key = seen.request.key if seen.request is not None else ""
    for one in found:
        by = blocked(one.trigger, status, seen, plan, now) or ""
        if one.due is not None and (_late(one, plan, now) or (plan.schedule is not None and plan.schedule.misfire == "skip")):
            settled = one.due
            by = f"it is {_span(now - one.due)} late" + (f", {by}" if by else "") if _late(one, plan, now) else by
            after[one.trigger] = Held(one.trigger, one.said, by, now, dropped=True)
            continue
        consumes = consumes or one.trigger == "alert"
        same = after.get(one.trigger)
        if same is None or same.dropped or (one.trigger == "alert" and same.key != key):
            after[one.trigger] = Held(one.trigger, one.said, by, now, key=key if one.trigger == "alert" else "")
    new = [one for trigger, one in after.items() if before.get(trigger) != one]
    note = "; ".join(f"{one.said}, {'let go' if one.dropped else 'held back'}: {one.by}" for one in new)
    reason = status.reason
    if status.state == "watching":
        reason = note or (reason if after else "" if before else reason)
    following = replace(status, reason=reason, settled=settled, held=tuple(after.values()))
    return Decision(following, requeue_after=_WATCH, consumes_request=consumes, note=note)


def _lasting(status: RetrainerStatus) -> tuple[Held, ...]:
    """What was let go is still to be seen; what was held back is looked at anew."""
    return tuple(one for one in status.held if one.dropped)


def _kept(firings: Sequence[Firing]) -> tuple[Firing, ...]:
    """Never more than a row should hold; those that count toward the maximum first."""
    if len(firings) <= KEPT_FIRINGS:
        return tuple(firings)
    counted = [one for one in firings if one.trigger != "manual"][-KEPT_FIRINGS:]
    others = [one for one in firings if one.trigger == "manual"]
    return tuple(sorted((*counted, *others[len(others) - (KEPT_FIRINGS - len(counted)) :]), key=lambda one: one.at))


def _span(span: timedelta) -> str:
    """In whole seconds, as `1 day, 2:00:00`."""
    return str(timedelta(seconds=span // timedelta(seconds=1)))


def _said(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
