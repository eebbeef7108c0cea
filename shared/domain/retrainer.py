"""Retrainer: watches one recommender and starts a run when its schedule, a trigger, an alert or a person asks for a retraining.

Only one retraining is active at a time, from the run's start to the end of its rollout. Then a cooldown follows, which grows while
retrainings do not help, until the retrainer alerts instead. The reason and the history say what fired or what held it back. A person's
request waits only for the active retraining, run or rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.backoff import MEASURED, counted, pause
from shared.domain.drift.alarm_decision import NOTHING_YET, AlarmMemory, remember
from shared.domain.machine import Decision, Edge, Machine
from shared.domain.triggers import (
    DAY,
    Firing,
    HeldTrigger,
    RetrainerObservation,
    RetrainerStatus,
    RetrainPlan,
    TriggerReading,
    findings,
    recent,
    said_at,
    spoken,
)
from shared.domain.warm_or_full import Mode, RequestedMode, TrainingHistory, choose

WATCH = timedelta(seconds=1)
_REST = timedelta(seconds=5)
KEPT_FIRINGS = 200
KEPT_ALERTS = 100

MACHINE = Machine(
    "retrainer",
    "watching",
    (
        Edge("watching", "retraining", "a trigger fired"),
        Edge("retraining", "cooling", "its run and rollout have ended"),
        Edge("cooling", "watching", "the cooldown is over"),
        Edge("cooling", "retraining", "requested"),
        Edge("watching", "alerting", "give_up_after retrainings in a row did not help"),
        Edge("alerting", "watching", "backoff reset, or the spec has changed"),
        Edge("alerting", "retraining", "requested, due, or new data"),
        *(Edge(state, "retired", "its recommender was deleted") for state in ("watching", "retraining", "cooling", "alerting")),
        Edge("retired", "watching", "a recommender has this name again"),
    ),
)
ANSWERS = {state: frozenset({"retrain"}) for state in ("watching", "cooling", "alerting", "retired")}
HITS_LOOKS = 2
"""Looks for which a fallen hit rate must persist; its evidence already includes many looks."""


@dataclass(frozen=True)
class StartRun:
    mode: Mode
    reason: str
    number: int
    trigger: str = "manual"
    kind: Literal["start_run"] = "start_run"


RetrainerDecision = Decision[RetrainerStatus, StartRun]


def decide(name: str, status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerDecision:
    if status.state == "retired":
        return Decision(replace(status, state="watching", reason="a recommender has this name again"), (), WATCH)
    if status.state == "retraining" and observation.ended is not None:
        return Decision(_ended(status, observation, plan, now), (), WATCH)
    before, status = status.state, _anew(status, observation, plan)
    if status.state != before:
        return Decision(status, requeue_after=WATCH)
    if status.state == "cooling" and status.until is not None and now >= status.until:
        following = replace(status, state="watching", reason="the cooldown is over", until=None, run=None)
        return Decision(following, requeue_after=WATCH)
    status = _looked(_adopted(status, observation, plan, now), observation, plan)
    over = _over(status, observation, plan, now)
    if over is not None:
        return Decision(over, requeue_after=WATCH)
    if (
        observation.request is not None and observation.request.verb == "alert" and observation.request.key in status.alerts
    ):  # repeated delivery
        return Decision(
            status, requeue_after=WATCH, consumes_request=True, note=f"{observation.request.summary()}: already answered by a retraining"
        )
    all_findings = findings(status, observation, plan, now)
    due = _due(all_findings, status, observation, plan)
    for finding in due:
        if blocked(finding.trigger, status, observation, plan, now) is None and not _late(finding, plan, now):
            if finding.trigger in MEASURED and status.fruitless >= plan.give_up_after:
                return _alert(status, finding, plan, now)
            return _fire(name, status, observation, finding, plan, now)
    triggers = frozenset(finding.trigger for finding in all_findings) | {"manual", "alert"}
    return _hold_back(replace(status, held=tuple(entry for entry in status.held if entry.trigger in triggers)), observation, plan, due, now)


def retire(status: RetrainerStatus, observation: RetrainerObservation) -> RetrainerDecision:
    """Retires a deleted recommender. The run counter stays, so that run ids stay unique if the name is used again."""
    following = status
    if status.state != "retired":
        following = RetrainerStatus("retired", "its recommender was deleted", fired=status.fired, alerts=status.alerts)
    return Decision(following, requeue_after=_REST, consumes_request=observation.request is not None)


def blocked(trigger: str, status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> str | None:
    """Returns what holds a trigger back, or None. A person's request waits only for what is active."""
    if status.state == "retraining":
        return f"run {status.run} of the last retraining, or its rollout, is under way"
    if observation.busy:
        return observation.busy
    if trigger == "manual":
        return None
    if not observation.serving and trigger != "schedule":
        return "no version serves yet"
    if status.state == "cooling" and status.until is not None and now < status.until:
        return f"cooldown until {said_at(status.until)}"
    if status.state == "alerting" and trigger in MEASURED:
        return _fruitless(status)
    by_itself = [firing.at for firing in recent(status.firings, now) if firing.trigger != "manual"]
    if plan.max_per_day is not None and len(by_itself) >= plan.max_per_day:
        free = sorted(by_itself)[len(by_itself) - plan.max_per_day] + DAY
        return f"{len(by_itself)} of {plan.max_per_day} retrainings in 24 hours; the next from {said_at(free)}"
    return None


def chosen(requested_mode: RequestedMode, observation: RetrainerObservation, plan: RetrainPlan) -> tuple[Mode, str]:
    """Returns the mode of a run, and the reason if `auto` has chosen it."""
    if requested_mode != "auto":
        return requested_mode, ""
    choice = choose(observation.past or TrainingHistory(), plan.auto)
    return choice.mode, choice.summary


def run_id(name: str, number: int) -> str:
    """Returns the run id of a firing; deterministic, so that the run starts once."""
    return f"{name}-retrain-{number}"


def _adopted(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerStatus:
    """A new or changed schedule has due times only after the change."""
    key = plan.schedule.key if plan.schedule else ""
    if status.schedule == key:
        return status
    since = min(observation.applied or now, now) if key else None
    return replace(status, schedule=key, settled=since, held=tuple(entry for entry in status.held if entry.trigger != "schedule"))


def _looked(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan) -> RetrainerStatus:
    """Updates the alarm state with the newest looks that the plan asks for. State of a version that no longer serves is discarded."""
    drift = _of(observation.version, status.drift) if plan.drift else NOTHING_YET
    kpi = _of(observation.version, status.kpi) if plan.kpi else NOTHING_YET
    if plan.drift and observation.drift is not None:
        drift = remember(drift, observation.drift, plan.drift, plan.looks)
    if plan.kpi and observation.kpi is not None:
        kpi = remember(kpi, observation.kpi, plan.kpi, HITS_LOOKS)
    return replace(status, drift=drift, kpi=kpi)


def _of(version: int, memory: AlarmMemory) -> AlarmMemory:
    return memory if version in (0, memory.version) else NOTHING_YET


def _due(
    all_findings: Sequence[TriggerReading], status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan
) -> list[TriggerReading]:
    """Returns the findings that want a run now, by priority. An active retraining answers what was measured before it."""
    wanted = []
    if observation.request is not None:
        trigger, mode = ("alert", plan.alert_mode or plan.mode) if observation.request.verb == "alert" else ("manual", plan.mode)
        wanted.append(TriggerReading(trigger, True, mode if observation.serving else "full", observation.request.summary()))
    measured = observation.serving and status.state != "retraining"
    return wanted + [finding for finding in all_findings if finding.fires and (measured or finding.trigger == "schedule")]


def _late(finding: TriggerReading, plan: RetrainPlan, now: datetime) -> bool:
    allowed = plan.schedule.allowed if plan.schedule else None
    return finding.due is not None and allowed is not None and now - finding.due > allowed


def _ended(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerStatus:
    trigger = status.firings[-1].trigger if status.firings else "manual"
    fruitless = counted(status.fruitless, trigger, observation.promoted)
    rest = pause(plan.cooldown, fruitless)
    reason = observation.ended or ""
    if rest > plan.cooldown:
        reason += f"; {fruitless} retrainings in a row did not help: backoff of {spoken(rest)}"
    until = now + rest
    follow = tuple(now + span for span in plan.follow_up) if trigger in MEASURED and observation.promoted else status.follow
    following = replace(status, state="cooling", reason=reason, until=until, held=_lasting(status), follow=follow)
    return replace(following, fruitless=fruitless, calm_after=until + rest if fruitless else None)


def _anew(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan) -> RetrainerStatus:
    """Resets the backoff if the spec has changed since the last retraining began, because the change may help: the pause is the cooldown
    again, and an alert ends."""
    last = status.firings[-1].at if status.firings else None
    if status.state == "retraining" or not status.fruitless or last is None or observation.applied is None or observation.applied <= last:
        return status
    following = replace(status, fruitless=0, calm_after=None, alerted=None)
    if status.state == "alerting":
        return replace(following, state="watching", reason="the spec has changed", held=_lasting(status))
    if status.state == "watching" or status.until is None or status.calm_after is None:
        return following
    ended = status.until - (status.calm_after - status.until)
    until = min(status.until, ended + plan.cooldown)
    return replace(following, until=until, reason=f"the spec has changed: cooldown until {said_at(until)}")


def _over(status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerStatus | None:
    """Resets the backoff after a quiet period; returns None while the period lasts or a trigger fires."""
    if status.state not in ("watching", "alerting") or not status.fruitless:
        return None
    fires = any(finding.fires for finding in findings(status, observation, plan, now) if finding.trigger in MEASURED)
    if not observation.serving or fires or status.calm_after is None or now < status.calm_after:
        return None
    following = replace(status, fruitless=0, calm_after=None, alerted=None)
    if status.state == "watching":
        return following
    return replace(following, state="watching", reason="backoff reset: a quiet period has passed", held=_lasting(status))


def _fruitless(status: RetrainerStatus) -> str:
    return f"{status.fruitless} retrainings in a row did not help"


def _alert(status: RetrainerStatus, finding: TriggerReading, plan: RetrainPlan, now: datetime) -> RetrainerDecision:
    """Alerts instead of a run that would repeat the last ones."""
    reason = f"{_fruitless(status)}, so no run is started: find the cause, then retrain by hand; {finding.summary}"
    calm_after = now + pause(plan.cooldown, status.fruitless)
    following = replace(status, state="alerting", reason=reason, alerted=now, calm_after=calm_after)
    others = tuple(entry for entry in _lasting(status) if entry.trigger != finding.trigger)
    by = _fruitless(status)  # noted now, because the next look finds nothing new
    following = replace(following, held=(*others, HeldTrigger(finding.trigger, finding.summary, by, now)))
    return Decision(following, requeue_after=WATCH, consumes_request=finding.trigger == "alert")


def _fire(
    name: str, status: RetrainerStatus, observation: RetrainerObservation, finding: TriggerReading, plan: RetrainPlan, now: datetime
) -> RetrainerDecision:
    number = status.fired + 1
    run = run_id(name, number)
    requested = finding.trigger in ("manual", "alert")
    following = replace(
        status,
        state="retraining",
        reason=finding.summary,
        run=run,
        fired=number,
        until=None,
        alerted=None,
        settled=finding.due or status.settled,
        follow=tuple(at for at in status.follow if at > now),
        firings=_newest_firings((*recent(status.firings, now), Firing(now, finding.trigger, run))),
        held=tuple(entry for entry in _lasting(status) if entry.trigger != finding.trigger),
        alerts=(*status.alerts, observation.request.key)[-KEPT_ALERTS:]
        if finding.trigger == "alert" and observation.request
        else status.alerts,
    )
    mode, why = chosen(finding.mode, observation, plan)
    reason = f"{finding.summary}; {why}" if why else finding.summary
    return Decision(
        replace(following, reason=reason), (StartRun(mode, reason, number, finding.trigger),), WATCH, consumes_request=requested
    )


def _hold_back(
    status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, due: Sequence[TriggerReading], now: datetime
) -> RetrainerDecision:
    """Records which triggers were held back and why, if this changed."""
    before = {entry.trigger: entry for entry in status.held}
    after = {  # keeps triggers that no longer fire, because they may fire again
        trigger: earlier
        for trigger, earlier in before.items()
        if earlier.dropped or earlier.by == blocked(trigger, status, observation, plan, now)
    }
    settled = status.settled
    for finding in due:
        by = blocked(finding.trigger, status, observation, plan, now) or ""
        dropped = _drop(finding, by, plan, now)
        if dropped is not None:
            settled, after[finding.trigger] = finding.due, dropped
            continue
        same, key = after.get(finding.trigger), observation.request.key if finding.trigger == "alert" and observation.request else ""
        if same is None or same.dropped or same.key != key:
            after[finding.trigger] = HeldTrigger(finding.trigger, finding.summary, by, now, key=key)
    new = [entry for trigger, entry in after.items() if before.get(trigger) != entry]
    note = "; ".join(f"{entry.said}, {'dropped' if entry.dropped else 'held back'}: {entry.by}" for entry in new)
    reason = status.reason
    if status.state == "watching":
        reason = note or (reason if after else "" if before else reason)
    following = replace(status, reason=reason, settled=settled, held=tuple(after.values()))
    return Decision(following, requeue_after=WATCH, consumes_request=any(finding.trigger == "alert" for finding in due), note=note)


def _drop(finding: TriggerReading, by: str, plan: RetrainPlan, now: datetime) -> HeldTrigger | None:
    """Returns the entry of a due time that will not start a run: too late, or skipped by `misfire`. None: the due time waits."""
    late = _late(finding, plan, now)
    if finding.due is None or not (late or (plan.schedule is not None and plan.schedule.misfire == "skip")):
        return None
    if late:
        by = f"{spoken(now - finding.due)} late" + (f", {by}" if by else "")
    return HeldTrigger(finding.trigger, finding.summary, by, now, dropped=True)


def _lasting(status: RetrainerStatus) -> tuple[HeldTrigger, ...]:
    """Keeps dropped due times visible; held triggers are evaluated again."""
    return tuple(entry for entry in status.held if entry.dropped)


def _newest_firings(firings: Sequence[Firing]) -> tuple[Firing, ...]:
    """Returns at most KEPT_FIRINGS firings; those that count toward the daily maximum are kept first."""
    if len(firings) <= KEPT_FIRINGS:
        return tuple(firings)
    counted = [firing for firing in firings if firing.trigger != "manual"][-KEPT_FIRINGS:]
    others = [firing for firing in firings if firing.trigger == "manual"]
    return tuple(sorted((*counted, *others[len(others) - (KEPT_FIRINGS - len(counted)) :]), key=lambda firing: firing.at))
