"""A rollout: a registered version on its way to the users, step by step, and back when it doesn't earn its place.

`decide` is pure. Weights move only by a new route; a step begins when every ready gateway has reported that route, and ends
by a verdict: pass goes on, fail goes back, inconclusive waits and pauses at the deadline, error pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.gate import Verdict
from shared.domain.machine import Decision, Edge, Machine, Request
from shared.domain.route import Route
from shared.domain.verdict import Judgement, Sample, judge_step

LOAD_LIMIT = timedelta(minutes=5)
SICK_LIMIT = timedelta(seconds=30)
_POLL = timedelta(milliseconds=250)

MACHINE = Machine(
    "rollout",
    "pending",
    (
        Edge("pending", "loading", "first in line"),
        Edge("loading", "canary", "answers on every server"),
        Edge("loading", "promoted", "the first version"),
        Edge("loading", "rolled_back", "can't be loaded"),
        Edge("canary", "promoted", "harm excluded, or asked"),
        Edge("canary", "rolled_back", "earns fewer hits, or fell sick"),
        Edge("canary", "paused", "asked, inconclusive at the deadline, error, or stable sick"),
        Edge("loading", "paused", "asked"),
        Edge("paused", "loading", "resumed"),
        Edge("paused", "canary", "resumed"),
        Edge("paused", "promoted", "asked"),
        Edge("paused", "aborted", "asked"),
        *(Edge(state, "aborted", "asked") for state in ("pending", "loading", "canary")),
    ),
)
ANSWERS = {
    "pending": frozenset({"abort"}),
    "loading": frozenset({"pause", "abort"}),
    "canary": frozenset({"pause", "promote", "abort"}),
    "paused": frozenset({"resume", "promote", "abort"}),
}


@dataclass(frozen=True)
class RolloutPlan:
    """What the spec says of rollouts."""

    steps: tuple[float, ...]
    max_harm: float
    min_users: int
    deadline: timedelta


@dataclass(frozen=True)
class StepReport:
    """What a step has shown so far: kept for each step, so that the end can be explained."""

    step: int
    weight: float
    since: datetime | None
    stable: Sample
    candidate: Sample
    judgement: Judgement


@dataclass(frozen=True)
class RolloutStatus:
    state: str = "pending"
    reason: str = ""
    since: datetime | None = None
    step: int = -1
    step_since: datetime | None = None
    resumes: str | None = None
    sick_since: datetime | None = None
    reports: tuple[StepReport, ...] = ()


@dataclass(frozen=True)
class RolloutObservation:
    request: Request | None = None
    blocked_by: str | None = None
    stable: int | None = None
    answering: frozenset[int] = frozenset()
    load_error: str | None = None
    routed: bool = False
    samples: tuple[Sample, Sample] | None = None
    """Stable's and the candidate's users of this step; None when they can't be counted."""


@dataclass(frozen=True)
class SetRoute:
    route: Route
    actor: str
    reason: str
    kind: Literal["set_route"] = "set_route"


RolloutDecision = Decision[RolloutStatus, SetRoute]


@dataclass(frozen=True)
class _Case:
    """One pass: everything that the decision rests on."""

    rollout: str
    version: int
    status: RolloutStatus
    seen: RolloutObservation
    plan: RolloutPlan
    now: datetime

    def to(self, state: str, reason: str, *effects: SetRoute, **changes: object) -> RolloutDecision:
        following = replace(self.status, state=state, reason=reason, since=self.now, **changes)  # type: ignore[arg-type]
        return Decision(following, effects, _POLL, consumes_request=self.seen.request is not None)

    def wait(self, **changes: object) -> RolloutDecision:
        return Decision(replace(self.status, **changes), requeue_after=_POLL)  # type: ignore[arg-type]

    def route(self, weight: float, step: int, actor: str, reason: str) -> SetRoute:
        assert self.seen.stable is not None
        return SetRoute(Route(self.seen.stable, self.version, weight, self.rollout, step), actor, reason)

    def back(self, state: str, reason: str, actor: str = "eyas") -> RolloutDecision:
        """Every user returns to the stable version."""
        if self.seen.stable is None or self.status.step < 0:
            return self.to(state, reason)
        return self.to(state, reason, SetRoute(Route(self.seen.stable), actor, reason))

    def promote(self, reason: str, actor: str = "eyas") -> RolloutDecision:
        return self.to("promoted", reason, SetRoute(Route(self.version), actor, reason))


def decide(
    rollout: str, version: int, status: RolloutStatus, seen: RolloutObservation, plan: RolloutPlan, now: datetime
) -> RolloutDecision:
    case = _Case(rollout, version, status, seen, plan, now)
    if MACHINE.terminal(status.state):
        return Decision(status, consumes_request=seen.request is not None)
    if seen.request is not None:
        return _asked(case, seen.request)
    if status.state == "pending":
        if seen.blocked_by:
            return case.wait(reason=f"waits for rollout {seen.blocked_by}")
        return case.to("loading", f"version {version} is being loaded")
    if status.state == "loading":
        return _loading(case)
    if status.state == "canary":
        return _canary(case)
    return Decision(status)


def _asked(case: _Case, request: Request) -> RolloutDecision:
    state, said = case.status.state, request.said()
    if request.verb not in ANSWERS[state]:
        return Decision(case.status, consumes_request=True, requeue_after=_POLL)
    if request.verb == "pause":
        return case.to("paused", said, resumes=state)
    if request.verb == "resume":
        return case.to(case.status.resumes or "canary", said, resumes=None, step_since=None, sick_since=None)
    if request.verb == "abort":
        return case.back("aborted", said, request.actor)
    if case.version not in case.seen.answering:
        return case.to(state, f"{said}: refused, version {case.version} doesn't answer")
    return case.promote(said, request.actor)


def _loading(case: _Case) -> RolloutDecision:
    if case.seen.load_error:
        return case.back("rolled_back", f"version {case.version} can't be loaded: {case.seen.load_error}")
    if case.version not in case.seen.answering:
        if case.status.since and case.now - case.status.since > LOAD_LIMIT:
            return case.back("rolled_back", f"version {case.version} didn't answer within {LOAD_LIMIT}")
        return case.wait()
    if case.seen.stable is None:
        return case.promote("the first version goes in without a canary")
    return _step(case, 0, f"version {case.version} answers")


def _step(case: _Case, step: int, why: str) -> RolloutDecision:
    weight = case.plan.steps[step]
    reason = f"{why}; {weight:.0%} of the users from now on"
    return case.to("canary", reason, case.route(weight, step, "eyas", reason), step=step, step_since=None, sick_since=None)


def _canary(case: _Case) -> RolloutDecision:
    status, seen = case.status, case.seen
    if seen.stable not in seen.answering or case.version not in seen.answering:
        return _sick(case)
    if status.sick_since is not None:
        return case.wait(sick_since=None)
    if not seen.routed:
        return case.wait()
    if status.step_since is None:
        return case.wait(step_since=case.now)
    if seen.samples is None:
        return case.to("paused", "what users did can't be counted", resumes="canary")
    return _judged(case, *seen.samples)


def _sick(case: _Case) -> RolloutDecision:
    """A server that restarts may come back; one that doesn't decides the rollout."""
    if case.status.sick_since is None:
        return case.wait(sick_since=case.now)
    if case.now - case.status.sick_since <= SICK_LIMIT:
        return case.wait()
    if case.seen.stable not in case.seen.answering:
        return case.to("paused", f"halted: the stable version {case.seen.stable} itself doesn't answer", resumes="canary")
    return case.back("rolled_back", f"version {case.version} stopped answering")


def _judged(case: _Case, stable: Sample, candidate: Sample) -> RolloutDecision:
    status, plan = case.status, case.plan
    final = status.step == len(plan.steps) - 1
    weight, steps = plan.steps[status.step], len(plan.steps)
    found = judge_step(stable, candidate, max_harm=plan.max_harm, min_users=plan.min_users, steps=steps, final=final, weight=weight)
    report = StepReport(status.step, plan.steps[status.step], status.step_since, stable, candidate, found)
    case = replace(case, status=replace(status, reports=(*(r for r in status.reports if r.step != status.step), report)))
    if found.verdict is Verdict.FAIL:
        return case.back("rolled_back", found.reason)
    if found.verdict is Verdict.PASS:
        return case.promote(found.reason) if final else _step(case, status.step + 1, found.reason)
    assert status.step_since is not None
    if case.now - status.step_since > plan.deadline:
        return case.to("paused", f"inconclusive at the deadline: {found.reason}", resumes="canary")
    return case.wait(reason=found.reason)
