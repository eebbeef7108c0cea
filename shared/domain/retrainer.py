"""A retrainer: watches one recommender and starts a run when drift, the hit rate or a person says so.

One retraining at a time: from the run's start to the end of its rollout, then a cooldown. What fired, or why nothing
could, is always in the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.machine import Decision, Edge, Machine, Request

_WATCH = timedelta(seconds=1)

MACHINE = Machine(
    "retrainer",
    "watching",
    (
        Edge("watching", "retraining", "a trigger fired"),
        Edge("retraining", "cooling", "its run and rollout have ended"),
        Edge("cooling", "watching", "the cooldown is over"),
        Edge("cooling", "retraining", "asked"),
    ),
)
ANSWERS = {"watching": frozenset({"retrain"}), "cooling": frozenset({"retrain"})}

Mode = Literal["full", "warm"]


@dataclass(frozen=True)
class RetrainPlan:
    mode: Mode
    cooldown: timedelta
    psi: float | None = None
    hit_rate: float | None = None
    hit_rate_mode: Mode = "full"


@dataclass(frozen=True)
class RetrainerStatus:
    state: str = "watching"
    reason: str = ""
    run: str | None = None
    until: datetime | None = None
    fired: int = 0


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


@dataclass(frozen=True)
class StartRun:
    mode: Mode
    reason: str
    number: int
    kind: Literal["start_run"] = "start_run"


RetrainerDecision = Decision[RetrainerStatus, StartRun]


def decide(name: str, status: RetrainerStatus, seen: RetrainerObservation, plan: RetrainPlan, now: datetime) -> RetrainerDecision:
    if status.state == "retraining":
        if seen.ended is None:
            return Decision(status, requeue_after=_WATCH)
        until = now + plan.cooldown
        return Decision(replace(status, state="cooling", reason=seen.ended, until=until), requeue_after=_WATCH)
    if seen.request is not None and seen.request.verb == "retrain" and not seen.busy:
        return _fire(name, status, plan.mode, seen.request.said(), consumes=True)
    if status.state == "cooling":
        if status.until is not None and now < status.until:
            return Decision(status, requeue_after=_WATCH)
        return Decision(replace(status, state="watching", reason="the cooldown is over", until=None, run=None), requeue_after=_WATCH)
    fired = _fired(seen, plan)
    if fired is None or not seen.serving:
        return Decision(status, requeue_after=_WATCH)
    mode, why = fired
    if seen.busy:
        return Decision(replace(status, reason=f"{why}, held back: {seen.busy}"), requeue_after=_WATCH)
    return _fire(name, status, mode, why, consumes=False)


def _fired(seen: RetrainerObservation, plan: RetrainPlan) -> tuple[Mode, str] | None:
    if plan.hit_rate is not None and seen.baseline and seen.current is not None:
        change = seen.current / seen.baseline - 1
        if change <= plan.hit_rate:
            said = f"hit rate {seen.current:.3f} fell by {-change:.1%} from {seen.baseline:.3f} (threshold {plan.hit_rate:+.0%})"
            return plan.hit_rate_mode, said
    if plan.psi is not None and seen.drift is not None and seen.drift >= plan.psi:
        return plan.mode, f"drift of {seen.drifted}: psi {seen.drift:.3f} (threshold {plan.psi:g})"
    return None


def _fire(name: str, status: RetrainerStatus, mode: Mode, why: str, consumes: bool) -> RetrainerDecision:
    number = status.fired + 1
    following = replace(status, state="retraining", reason=why, run=run_id(name, number), fired=number, until=None)
    return Decision(following, (StartRun(mode, why, number),), _WATCH, consumes_request=consumes)


def run_id(name: str, number: int) -> str:
    """The id of the run that a firing starts: deterministic, so that it is started once."""
    return f"{name}-retrain-{number}"
