"""Rollout: brings a registered version to the users step by step, and rolls it back if it does harm.

`decide` is pure. Weights change only by a new route. A step begins when every ready gateway has reported that route, and ends by a verdict:
pass continues, fail rolls back, inconclusive waits and pauses at the deadline, error pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from shared.domain import step_analysis
from shared.domain.evidence_history import LookBounds, looked
from shared.domain.gate import Verdict
from shared.domain.guardrail import judge_mirror
from shared.domain.machine import Decision, Edge, Machine, Request
from shared.domain.rollout_plan import RolloutPlan, percent, spoken
from shared.domain.route import Route
from shared.domain.step_analysis import ShadowReport, StepLook, StepReport

SICK_LIMIT = timedelta(seconds=30)
_POLL = timedelta(milliseconds=250)
_BETWEEN_LOOKS = timedelta(seconds=1)

_PAUSED = "requested, inconclusive at the deadline, error, or stable version unhealthy"
MACHINE = Machine(
    "rollout",
    "pending",
    (
        Edge("pending", "loading", "first in line"),
        Edge("loading", "shadow", "answers on every server; the spec has a shadow"),
        Edge("loading", "canary", "answers on every server"),
        Edge("loading", "promoted", "the first version, or a rollback"),
        Edge("loading", "rolled_back", "cannot be loaded"),
        Edge("loading", "paused", "requested, or stable version unhealthy"),
        Edge("shadow", "canary", "answers as well as the stable version, or requested"),
        Edge("shadow", "promoted", "requested"),
        Edge("shadow", "rolled_back", "answers badly, or is unhealthy"),
        Edge("shadow", "paused", _PAUSED),
        Edge("canary", "promoted", "harm excluded, or requested"),
        Edge("canary", "rolled_back", "earns fewer hits, fails a guardrail, or is unhealthy"),
        Edge("canary", "paused", _PAUSED),
        Edge("paused", "loading", "resumed"),
        Edge("paused", "shadow", "resumed"),
        Edge("paused", "canary", "resumed, or skipped to the next step"),
        Edge("paused", "promoted", "requested"),
        Edge("paused", "aborted", "requested"),
        *(Edge(state, "aborted", "requested") for state in ("pending", "loading", "shadow", "canary")),
    ),
)
ANSWERS = {
    "pending": frozenset({"abort"}),
    "loading": frozenset({"pause", "abort"}),
    "shadow": frozenset({"pause", "skip", "promote", "abort"}),
    "canary": frozenset({"pause", "skip", "promote", "abort"}),
    "paused": frozenset({"resume", "skip", "promote", "abort"}),
}


@dataclass(frozen=True)
class RolloutStatus:
    state: str = "pending"
    reason: str = ""
    since: datetime | None = None
    step: int = -1
    step_since: datetime | None = None
    """Time since which every gateway serves the route of this step, or of the shadow."""
    resumes: str | None = None
    sick_since: datetime | None = None
    reports: tuple[StepReport, ...] = ()
    looked_at: datetime | None = None
    """Time of this step's last look."""
    failures: int = 0
    inconclusive: int = 0
    """Consecutive latest looks at which a guardrail failed, and at which the verdict was inconclusive."""
    shadow: ShadowReport | None = None
    base: float | None = None
    base_of: int = -1
    """The stable version's rate before the step, and the step's number."""
    looks: tuple[LookBounds, ...] = ()
    """Bounded history of looks, oldest first."""


@dataclass(frozen=True)
class RolloutObservation:
    request: Request | None = None
    blocked_by: str | None = None
    stable: int | None = None
    serves: bool = False
    """Whether this version already serves all users."""
    answering: frozenset[int] = frozenset()
    load_error: str | None = None
    proven: bool = True
    """Whether the version passed parity on a real server, or another version serves as its comparison."""
    ours: bool = True
    """Whether the current route is the one that this rollout set."""
    routed: bool = False
    """Whether every gateway serves the route."""
    missing: str = ""
    """Gateways that do not serve the route yet."""
    base: float | None = None
    look: StepLook | None = None
    """None: this pass did not read the data."""


@dataclass(frozen=True)
class SetRoute:
    route: Route
    actor: str
    reason: str
    kind: Literal["set_route"] = "set_route"


RolloutDecision = Decision[RolloutStatus, SetRoute]


@dataclass(frozen=True)
class _Case:
    """Inputs of the decision of one pass."""

    rollout: str
    version: int
    status: RolloutStatus
    observation: RolloutObservation
    plan: RolloutPlan
    now: datetime

    def to(self, state: str, reason: str, *effects: SetRoute, **changes: object) -> RolloutDecision:
        fresh = replace(self.status, state=state, reason=reason, since=self.now, looked_at=None, failures=0, inconclusive=0)
        return Decision(replace(fresh, **changes), effects, _POLL, consumes_request=self.observation.request is not None)  # type: ignore[arg-type]

    def wait(self, rest: timedelta = _POLL, **changes: object) -> RolloutDecision:
        return Decision(replace(self.status, **changes), requeue_after=rest)  # type: ignore[arg-type]

    def refuse(self, reason: str) -> RolloutDecision:
        return Decision(replace(self.status, reason=reason), requeue_after=_POLL, consumes_request=True)

    def pause(self, reason: str) -> RolloutDecision:
        return self.to("paused", reason, resumes=self.status.state)

    def late(self) -> bool:
        """Whether loading or routing takes longer than the plan allows."""
        return self.status.since is not None and self.now - self.status.since > self.plan.progress

    def unproven(self) -> str:
        return unproven(self.version)

    def route(self, number: int, actor: str, reason: str) -> SetRoute:
        """Returns the route of a step; of the shadow for a negative number."""
        assert self.observation.stable is not None
        if number < 0:
            return SetRoute(Route(self.observation.stable, self.version, 0.0, self.rollout, -1, shadow=True), actor, reason)
        weight = self.plan.steps[number].weight
        return SetRoute(Route(self.observation.stable, self.version, weight, self.rollout, number), actor, reason)

    def step(self, number: int, why: str, actor: str = "eyas") -> RolloutDecision:
        reason = f"{why}; {percent(self.plan.steps[number].weight)} of the users from now on"
        route = self.route(number, actor, reason)
        return self.to("canary", reason, route, step=number, step_since=None, sick_since=None, resumes=None)

    def back(self, state: str, reason: str, actor: str = "eyas") -> RolloutDecision:
        """Returns all users to the stable version."""
        untouched = self.status.step < 0 and "shadow" not in (self.status.state, self.status.resumes)
        if self.observation.stable is None or untouched:
            return self.to(state, reason)
        return self.to(state, reason, SetRoute(Route(self.observation.stable), actor, reason))

    def promote(self, reason: str, actor: str = "eyas") -> RolloutDecision:
        return self.to("promoted", reason, SetRoute(Route(self.version), actor, reason))


def decide(
    rollout: str, version: int, status: RolloutStatus, observation: RolloutObservation, plan: RolloutPlan, now: datetime
) -> RolloutDecision:
    case = _Case(rollout, version, status, observation, plan, now)
    if MACHINE.terminal(status.state):
        return Decision(status, consumes_request=observation.request is not None)
    if observation.request is not None:
        return _handle_request(case, observation.request)
    if status.state == "pending":
        if observation.blocked_by:
            return case.wait(reason=f"waits for rollout {observation.blocked_by}")
        return case.to("loading", f"version {version} is being loaded")
    if status.state == "loading":
        return _loading(case)
    if status.state in ("shadow", "canary"):
        return _tried(case)
    return Decision(status)


def due(status: RolloutStatus, plan: RolloutPlan, now: datetime) -> bool:
    """Returns whether this pass reads the data: at each interval, and at the step's deadline."""
    if status.step_since is None or status.state not in ("shadow", "canary"):
        return False
    last = status.looked_at or status.step_since
    end = status.step_since + _longest(status, plan)
    return now >= (min(last + plan.every, end) if last < end else last + plan.every)


def deadline(status: RolloutStatus, plan: RolloutPlan) -> datetime | None:
    """Returns when the current step ends without a verdict, or when a shadow gets its verdict."""
    if status.step_since is None or status.state not in ("shadow", "canary") or status.step >= len(plan.steps):
        return None
    return status.step_since + _longest(status, plan)


def _longest(status: RolloutStatus, plan: RolloutPlan) -> timedelta:
    if status.state == "shadow":
        return plan.shadow.length if plan.shadow else timedelta(0)
    return plan.steps[status.step].max


def refusal(verb: str, version: int, status: RolloutStatus, plan: RolloutPlan) -> str | None:
    """Returns why an accepted verb cannot be applied now, and what to do instead; else None."""
    if verb != "skip":
        return None
    at = status.resumes if status.state == "paused" else status.state
    if at == "loading":
        return f"version {version} is not loaded yet, so there is no step to skip; resume or abort it"
    if status.step == len(plan.steps) - 1:
        return f"this is the last step; promote sends all users to version {version}, abort sends them back"
    return None


def unproven(version: int) -> str:
    """Explains why the version cannot be the first to serve, and what to do instead."""
    return f"version {version} has no parity proof on a real server: start a new run"


def _handle_request(case: _Case, request: Request) -> RolloutDecision:
    state, reason = case.status.state, request.summary()
    if request.verb not in ANSWERS[state]:
        return Decision(case.status, consumes_request=True, requeue_after=_POLL)
    if request.verb == "pause":
        return case.pause(reason)
    if request.verb == "resume":
        return _resumed(case, reason, request.actor)
    if request.verb == "abort":
        return case.back("aborted", reason, request.actor)
    refused = refusal(request.verb, case.version, case.status, case.plan)
    if refused is not None:
        return case.refuse(f"{reason}: refused, {refused}")
    if case.version not in case.observation.answering:
        return case.refuse(f"{reason}: refused, version {case.version} does not answer")
    if request.verb == "promote":
        return case.promote(reason, request.actor) if case.observation.proven else case.refuse(f"{reason}: refused, {case.unproven()}")
    if case.observation.stable is None:
        return case.refuse(f"{reason}: refused, version {case.version} serves all users already; promote or abort ends this rollout")
    return case.step(case.status.step + 1, reason, request.actor)


def _resumed(case: _Case, reason: str, actor: str) -> RolloutDecision:
    """Returns to the paused state; sets the route again if it was changed."""
    state = case.status.resumes or "canary"
    fresh: dict[str, object] = {"resumes": None, "step_since": None, "sick_since": None}
    if state == "loading" or case.observation.stable is None:
        return case.to(state, reason, **fresh)
    return case.to(state, reason, case.route(case.status.step, actor, reason), **fresh)


def _loading(case: _Case) -> RolloutDecision:
    observation, version, plan = case.observation, case.version, case.plan
    if observation.load_error:
        return case.back("rolled_back", f"version {version} cannot be loaded: {observation.load_error}")
    if version not in observation.answering:
        if case.late():
            return case.back("rolled_back", f"version {version} did not answer on every server within {spoken(plan.progress)}")
        return case.wait()
    if plan.back is not None:
        return case.promote(f"{plan.back.summary()}; version {version} answers", plan.back.actor)
    if observation.serves:
        return case.promote(f"version {version} serves all users already")
    if observation.stable is None:
        if not observation.proven:
            return case.back("rolled_back", case.unproven())
        return case.promote("the first version is promoted without a canary")
    if observation.stable not in observation.answering:
        if case.late():
            return case.pause(f"halted: the stable version {observation.stable} does not answer")
        return case.wait()
    if plan.shadow is None:
        return case.step(0, f"version {version} answers")
    reason = f"version {version} answers; it shadows version {observation.stable} for {spoken(plan.shadow.length)}"
    return case.to("shadow", reason, case.route(-1, "eyas", reason), step_since=None, sick_since=None)


def _tried(case: _Case) -> RolloutDecision:
    """Handles the shadow and the steps: checks route and servers first, then the users' feedback."""
    status, observation = case.status, case.observation
    if observation.stable is None:
        return case.pause(f"version {case.version} serves all users already: promote or abort ends this rollout")
    if not observation.ours:
        return case.pause("the route was changed outside this rollout: resume sets it again, abort ends this rollout")
    if observation.stable not in observation.answering or case.version not in observation.answering:
        return _sick(case)
    if status.sick_since is not None:
        return case.wait(sick_since=None)
    if status.step_since is None:
        if observation.routed:
            fields: dict[str, Any] = {} if status.base_of == status.step else {"base": observation.base, "base_of": status.step}
            return case.wait(step_since=case.now, **fields)
        if case.late():
            return case.pause(f"the route has not reached all gateways after {spoken(case.plan.progress)}: {observation.missing}")
        return case.wait()
    if observation.look is None:
        return case.wait(min(max(case.plan.every / 10, _POLL), _BETWEEN_LOOKS))
    if status.state == "shadow":
        return _mirrored(case, observation.look)
    return _judged(case, observation.look)


def _sick(case: _Case) -> RolloutDecision:
    """Waits for a server that may restart; after SICK_LIMIT pauses or rolls back."""
    if case.status.sick_since is None:
        return case.wait(sick_since=case.now)
    if case.now - case.status.sick_since <= SICK_LIMIT:
        return case.wait()
    if case.observation.stable not in case.observation.answering:
        return case.pause(f"halted: the stable version {case.observation.stable} does not answer")
    return case.back("rolled_back", f"version {case.version} stopped answering")


def _mirrored(case: _Case, look: StepLook) -> RolloutDecision:
    """Judges a shadow. A shadow can fail early, but passes only when its time is over."""
    status, plan = case.status, case.plan
    assert plan.shadow is not None and status.step_since is not None
    if look.mirror is None:
        return case.pause(look.uncounted("answers of the shadow"))
    judgement = judge_mirror(plan.guardrails, look.mirror, plan.shadow.min_answers)
    case = replace(case, status=replace(status, shadow=ShadowReport.of(look.mirror, status.step_since, judgement)))
    failures = status.failures + 1 if judgement.verdict is Verdict.FAIL else 0
    if failures >= plan.failures:
        return case.back("rolled_back", f"in the shadow: {judgement.reason}")
    if judgement.verdict is Verdict.ERROR:
        return case.pause(f"in the shadow: {judgement.reason}")
    if case.now - status.step_since < plan.shadow.length:
        return case.wait(reason=f"in the shadow: {judgement.reason}", looked_at=case.now, failures=failures)
    if judgement.verdict is Verdict.PASS:
        return case.step(0, f"in the shadow: {judgement.reason}")
    return case.pause(f"inconclusive after {spoken(plan.shadow.length)} in the shadow: {judgement.reason}")


def _judged(case: _Case, look: StepLook) -> RolloutDecision:
    status, plan = case.status, case.plan
    assert status.step_since is not None
    step, final = plan.steps[status.step], status.step == len(plan.steps) - 1
    report = step_analysis.judge(look, plan, status.step, status.step_since, status.base)
    reports = (*(r for r in status.reports if r.step != status.step), report)
    assert case.observation.stable is not None
    looks = looked(status.looks, report, case.observation.stable, case.now)
    case = replace(case, status=replace(status, reports=reports, looks=looks))
    spent, failures = case.now - status.step_since, status.failures + 1 if report.broken else 0
    if failures >= plan.failures or report.harmed:
        return case.back("rolled_back", report.reason)
    if report.uncertain:
        return case.pause(report.reason)
    if report.verdict is Verdict.PASS:
        if spent < step.min:
            reason = f"{report.reason}; the step continues until its minimum of {spoken(step.min)} is over"
            return case.wait(reason=reason, looked_at=case.now, failures=0, inconclusive=0)
        return case.promote(report.reason) if final else case.step(status.step + 1, report.reason)
    count = 0 if report.broken else status.inconclusive + 1
    if spent >= step.max:
        return case.pause(f"inconclusive at the deadline of {spoken(step.max)}: {report.reason}")
    if plan.inconclusive is not None and count >= plan.inconclusive:
        return case.pause(f"inconclusive {count} times in a row: {report.reason}")
    return case.wait(reason=report.reason, looked_at=case.now, failures=failures, inconclusive=count)
