"""A run: from a spec to a registered version, one stage after the other.

`decide` is pure. A stage that refuses its data ends the run; one that crashed or was lost is tried again as a new
attempt; one that met a gate it can't pass ends the run as rejected, with the reasons.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.gate import Gate, GateResult, Verdict, judge
from shared.domain.ids import attempt_name
from shared.domain.machine import Decision, Edge, Machine, Request

STAGES = ("etl", "train", "evaluate", "export", "verify")
MAX_FAULTS = 3
"""Attempts that end by their own fault before the run gives up."""
MAX_LOST = 20
"""Attempts that are lost with their platform: restarts are no fault of theirs, but a stage that kills its machine must end too."""
_POLL = timedelta(milliseconds=250)

_FORWARD = ("pending", *STAGES, "registered")
MACHINE = Machine(
    "run",
    "pending",
    (
        *(Edge(a, b, "stage published" if a in STAGES else "first in line") for a, b in itertools.pairwise(_FORWARD)),
        Edge("evaluate", "rejected", "a quality gate failed"),
        Edge("verify", "rejected", "the served unit failed a gate"),
        *(Edge(stage, "failed", "refused its input, or out of attempts") for stage in STAGES),
        *(Edge(state, "cancelled", "asked") for state in ("pending", *STAGES)),
    ),
)
ANSWERS = {state: frozenset({"cancel"}) for state in ("pending", *STAGES)}


@dataclass(frozen=True)
class StageDone:
    """A stage whose output is published: exactly one attempt of it."""

    stage: str
    attempt: str
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True)
class RunStatus:
    state: str = "pending"
    reason: str = ""
    attempt: int = 0
    faults: int = 0
    """Of the stage's attempts so far."""
    attempt_since: datetime | None = None
    stages: tuple[StageDone, ...] = ()
    gates: tuple[GateResult, ...] = ()


@dataclass(frozen=True)
class RunPlan:
    """What the spec says of runs."""

    gates: tuple[Gate, ...]
    timeouts: Mapping[str, timedelta]


@dataclass(frozen=True)
class Published:
    """What the attempt's manifest says, if there is one. `metrics` are all of the run's so far."""

    metrics: Mapping[str, float]
    failure: str | None = None
    serving: bool = False
    """Whether there was a version to compare with."""


Fault = Literal["crash", "memory", "evicted", "image", "unschedulable", "quota", "deadline"]
"""What kind of trouble a job is in: each is met in its own way."""


@dataclass(frozen=True)
class Job:
    """An attempt as its executor sees it. `waiting`: it is accepted and has not begun; the reason says what it waits for.

    `fault` says more of a job that waits or failed; `since` is when its work began, where the executor knows.
    """

    phase: Literal["waiting", "running", "succeeded", "failed", "lost"]
    reason: str = ""
    fault: Fault | None = None
    since: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RunObservation:
    request: Request | None = None
    blocked_by: str | None = None
    job: Job | None = None
    published: Published | None = None


@dataclass(frozen=True)
class StartStage:
    stage: str
    attempt: str
    kind: Literal["start_stage"] = "start_stage"


@dataclass(frozen=True)
class StopStage:
    attempt: str
    kind: Literal["stop_stage"] = "stop_stage"


@dataclass(frozen=True)
class RegisterVersion:
    """Registers what the run exported, and starts its rollout."""

    kind: Literal["register_version"] = "register_version"


RunEffect = StartStage | StopStage | RegisterVersion
RunDecision = Decision[RunStatus, RunEffect]


def decide(run: str, status: RunStatus, seen: RunObservation, plan: RunPlan, now: datetime) -> RunDecision:
    if MACHINE.terminal(status.state):
        return Decision(status, consumes_request=seen.request is not None)
    if seen.request is not None:
        return _asked(run, status, seen.request)
    if status.state == "pending":
        if seen.blocked_by:
            return Decision(replace(status, reason=f"waits for run {seen.blocked_by}"), requeue_after=_POLL)
        return _start(run, status, "etl", 1, "", now)
    if seen.published is not None:
        return _published(run, status, seen.published, plan, now)
    return _unpublished(run, status, seen.job, plan, now)


def _asked(run: str, status: RunStatus, request: Request) -> RunDecision:
    if request.verb != "cancel":
        return Decision(status, consumes_request=True, requeue_after=_POLL)
    effects = (StopStage(_current(run, status)),) if status.state in STAGES else ()
    return Decision(replace(status, state="cancelled", reason=request.said()), effects, consumes_request=True)


def _published(run: str, status: RunStatus, published: Published, plan: RunPlan, now: datetime) -> RunDecision:
    if published.failure is not None:
        return Decision(replace(status, state="failed", reason=f"{status.state}: {published.failure}"))
    done = StageDone(status.state, _current(run, status), status.attempt_since or now, now)
    results = tuple(judge(gate, published.metrics, published.serving) for gate in plan.gates if gate.stage == status.state)
    status = replace(status, stages=(*status.stages, done), gates=(*status.gates, *results))
    refused = [result.reason for result in results if result.verdict is not Verdict.PASS]
    if refused:
        return Decision(replace(status, state="rejected", reason="; ".join(refused)))
    if status.state == STAGES[-1]:
        return Decision(replace(status, state="registered", reason="all gates passed"), (RegisterVersion(),))
    return _start(run, status, STAGES[STAGES.index(status.state) + 1], 1, "", now)


def _unpublished(run: str, status: RunStatus, job: Job | None, plan: RunPlan, now: datetime) -> RunDecision:
    """No manifest: the attempt still works, or it ended without one."""
    effects: tuple[RunEffect, ...] = ()
    lost = job is None or job.phase == "lost"
    if job is not None and job.phase == "running":
        limit = plan.timeouts[status.state]
        if status.attempt_since is None or now - status.attempt_since <= limit:
            return Decision(status, requeue_after=_POLL)
        why = f"ran longer than {limit.total_seconds():g} s"
        effects = (StopStage(_current(run, status)),)
    elif lost:
        why = (job.reason if job else "") or "its process was lost"
    else:
        why = (job.reason if job else "") or "ended without publishing anything"
    status = replace(status, faults=status.faults + (not lost))
    said = f"{status.state}, attempt {status.attempt}: {why}"
    if status.faults >= MAX_FAULTS:
        return Decision(replace(status, state="failed", reason=f"{said}; gave up after {MAX_FAULTS} faults"), effects)
    if status.attempt - status.faults >= MAX_LOST:
        reason = f"{said}; gave up after {MAX_LOST} lost attempts: does it need more memory than there is?"
        return Decision(replace(status, state="failed", reason=reason), effects)
    again = _start(run, status, status.state, status.attempt + 1, said, now)
    return replace(again, effects=effects + again.effects)


def _start(run: str, status: RunStatus, stage: str, attempt: int, why: str, now: datetime) -> RunDecision:
    faults = status.faults if stage == status.state else 0
    following = replace(status, state=stage, attempt=attempt, faults=faults, attempt_since=now, reason=why)
    return Decision(following, (StartStage(stage, attempt_name(run, stage, attempt)),), requeue_after=_POLL)


def _current(run: str, status: RunStatus) -> str:
    return attempt_name(run, status.state, status.attempt)
