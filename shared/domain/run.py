"""Run: leads from a spec to a registered version, one stage after the other.

`refit` runs between evaluate and export if the spec asks for it: the gates judge a candidate trained on the older data, and the exported
model is trained on all data.

`decide` is pure. A stage with unchanged inputs is reused from an earlier attempt. Rejected data ends the run. A fault starts a new attempt
according to its entry in `POLICIES`. A gate that does not pass ends the run as rejected, with the reasons.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from shared.domain.gate import Gate, GateResult, Silence, Verdict, judge
from shared.domain.ids import attempt_name
from shared.domain.machine import Decision, Edge, Machine, Request
from shared.domain.stage_reuse import ReuseBasis

STAGES = ("etl", "train", "evaluate", "refit", "export", "verify")
RESOURCES: Mapping[str, str] = {"refit": "train"}
"""Stage whose entry of the spec's `resources` applies if a stage has no entry of its own."""
_REFIT = "refit"
MAX_FAULTS = 3
"""Attempts of a stage with own faults of any kind before the run gives up."""
MAX_LOST = 20
"""Attempts lost with their platform before the run gives up: restarts are not faults, but a stage that kills its machine must end."""
LONGEST_WAIT = timedelta(hours=24)
"""Maximum wait for a machine; a queue for scarce machines is not a fault."""
IMAGE_WAIT = timedelta(minutes=10)
_POLL = timedelta(milliseconds=250)
_LONGEST_POLL = timedelta(seconds=2)
_QUEUED = timedelta(seconds=5)
"""Poll interval of queued runs, for the reason shown; an admitted run starts without delay."""
_LONGEST_BACKOFF = timedelta(minutes=1)

Fault = Literal["crash", "disk", "memory", "evicted", "image", "unschedulable", "quota", "deadline"]
"""Kinds of faults of a job; each has its own policy."""


@dataclass(frozen=True)
class Policy:
    """Reaction to a kind of fault. `attempts`: attempts with this fault before the run gives up. The pause is `backoff`, multiplied by
    `growth` for each further attempt. `own`: the fault counts against the stage. `advice`: what a person can do."""

    attempts: int = MAX_FAULTS
    backoff: timedelta = timedelta(seconds=1)
    growth: int = 10
    own: bool = True
    advice: str = ""

    def pause(self, ended: int) -> timedelta:
        """Returns the pause before the next attempt after `ended` attempts with this fault."""
        factor: int = self.growth ** (ended - 1)
        return min(self.backoff * factor, _LONGEST_BACKOFF)


POLICIES: Mapping[str, Policy] = {
    "crash": Policy(),
    "deadline": Policy(advice="raise resources.{stage}.timeout if it is only slow"),
    # The same data needs the same memory, so retry only once, in case the machine was short of memory.
    "memory": Policy(attempts=2, advice="raise resources.{stage}.memory"),
    "disk": Policy(attempts=MAX_LOST, growth=2, own=False, advice="free some space on its disk, then retry the run"),
    "evicted": Policy(attempts=MAX_LOST, growth=2, own=False, advice="its machines are evicted repeatedly"),
    "lost": Policy(attempts=MAX_LOST, backoff=timedelta(0), own=False, advice="check whether it needs more memory than its machine has"),
    # A new attempt needs the same image and machine. Only a person or time can help, so the attempt itself waits.
    "image": Policy(attempts=1, advice="check the image's name and whether this cluster may pull it, then retry the run"),
    "unschedulable": Policy(attempts=1, advice="lower resources.{stage}, or add machines, then retry the run"),
    "quota": Policy(attempts=1, advice="lower resources.{stage}, or raise the quota, then retry the run"),
    "waiting": Policy(attempts=1, advice="check what blocks the executor, then retry the run"),
}
"""By the kind of fault; "lost": the executor no longer knows the attempt; "waiting": the attempt never began, without a known reason."""

_FORWARD = ("pending", *STAGES, "registered")
MACHINE = Machine(
    "run",
    "pending",
    (
        *(Edge(a, b, "stage published" if a in STAGES else "first in line") for a, b in itertools.pairwise(_FORWARD)),
        Edge("pending", "failed", "cannot begin"),
        Edge("evaluate", "export", "stage published; no refit"),
        Edge("evaluate", "rejected", "a quality gate did not pass"),
        Edge("refit", "rejected", "the refitted model is proven worse than the candidate"),
        Edge("verify", "rejected", "the served unit did not pass a gate"),
        *(Edge(stage, "failed", "refused its input, or out of attempts") for stage in STAGES),
        *(Edge(state, "cancelled", "requested") for state in ("pending", *STAGES)),
    ),
)
ANSWERS = {state: frozenset({"cancel"}) for state in ("pending", *STAGES)}


@dataclass(frozen=True)
class StageDone:
    """Stage whose output is published by exactly one attempt, possibly of another run (stage reuse)."""

    stage: str
    attempt: str
    started_at: datetime
    ended_at: datetime
    basis: ReuseBasis | None = None

    @property
    def reused(self) -> bool:
        return self.basis is not None and self.basis.attempt != ""

    @property
    def began(self) -> datetime:
        """Time when the attempt began, possibly in another run."""
        return (self.basis.since if self.basis else None) or self.started_at


@dataclass(frozen=True)
class RunStatus:
    state: str = "pending"
    reason: str = ""
    attempt: int = 0
    """Attempt of the current stage; 0 if another run's attempt is reused."""
    ended: tuple[str, ...] = ()
    """Faults of the earlier attempts of this stage, by kinds of `POLICIES`."""
    attempt_since: datetime | None = None
    retry_at: datetime | None = None
    """Time when the next attempt starts, after its pause."""
    waiting: str = ""
    """Kind of fault that keeps the attempt from beginning."""
    waiting_since: datetime | None = None
    basis: ReuseBasis | None = None
    """Basis of the current stage."""
    stages: tuple[StageDone, ...] = ()
    gates: tuple[GateResult, ...] = ()
    dead_letter: bool = False
    """The run gave up after the maximum of attempts or waiting; neither data nor spec is known to be wrong."""


@dataclass(frozen=True)
class RunPlan:
    """Run settings of the spec."""

    gates: tuple[Gate, ...]
    timeouts: Mapping[str, timedelta]
    stages: tuple[str, ...] = STAGES
    """Stages of this run, in order."""
    longest_wait: timedelta = LONGEST_WAIT
    accepts: str = ""
    """Who accepts inconclusive gates for this run."""


@dataclass(frozen=True)
class AttemptResult:
    """Content of the attempt's manifest. `metrics`: all metrics of the run so far."""

    metrics: Mapping[str, float]
    failure: str | None = None
    serving: bool = False
    """Whether a serving version existed for the comparison."""
    steady: bool = True
    """Whether the data stayed unchanged while the attempt read it."""
    silence: Silence = field(default_factory=Silence)
    """Reasons for missing metrics."""


@dataclass(frozen=True)
class Job:
    """State of an attempt in its executor. `waiting`: accepted but not begun; the reason says what the attempt waits for.

    `fault` classifies a job that waits or failed; `since` is when its work began, if the executor knows it.
    """

    phase: Literal["waiting", "running", "succeeded", "failed", "lost"]
    reason: str = ""
    fault: Fault | None = None
    since: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RunObservation:
    request: Request | None = None
    waits: str | None = None
    """Why a pending run may not begin."""
    job: Job | None = None
    published: AttemptResult | None = None
    ahead: ReuseBasis | None = None
    """Basis of the stage that would start now."""
    gone: str | None = None
    """Why no further stage can ever start."""


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
    """Registers the exported model as a version, and starts its rollout."""

    kind: Literal["register_version"] = "register_version"


RunEffect = StartStage | StopStage | RegisterVersion
RunDecision = Decision[RunStatus, RunEffect]


def decide(run: str, status: RunStatus, observation: RunObservation, plan: RunPlan, now: datetime) -> RunDecision:
    if MACHINE.terminal(status.state):
        return Decision(status, consumes_request=observation.request is not None)
    if observation.request is not None:
        return _handle_request(run, status, observation.request)
    if observation.gone:
        if status.state == "pending":  # fails in the stage that it cannot start
            return Decision(replace(status, state="etl", reason=observation.gone, attempt=1))
        return Decision(replace(status, state="failed", reason=observation.gone, retry_at=None))
    if status.state == "pending":
        if observation.waits:
            return Decision(replace(status, reason=observation.waits), requeue_after=_QUEUED)
        return _enter(run, status, "etl", observation, now)
    if status.retry_at is not None:
        if timedelta(0) < status.retry_at - now <= _LONGEST_BACKOFF:  # a longer pause means that a clock was wrong
            return Decision(status, requeue_after=min(_POLL, status.retry_at - now))
        return _start(run, status, status.attempt, status.reason, observation, now)
    if observation.published is not None:
        return _published(run, status, observation, plan, now)
    return _unpublished(run, status, observation, plan, now)


def current(run: str, status: RunStatus) -> str:
    """Returns the attempt that runs the current stage or is reused for it."""
    if status.basis is not None and status.basis.attempt:
        return status.basis.attempt
    return attempt_name(run, status.state, status.attempt)


def run_stages(refit: bool) -> tuple[str, ...]:
    """Returns the stages of a run, in order."""
    return STAGES if refit else tuple(stage for stage in STAGES if stage != _REFIT)


def next_stage(stages: Sequence[str], stage: str) -> str | None:
    """Returns the following stage; None after the last."""
    return next(iter(stages[stages.index(stage) + 1 :]), None)


def works(run: str, status: RunStatus) -> frozenset[str]:
    """Returns the active attempt, or an empty set."""
    own = status.state in STAGES and status.attempt > 0 and status.retry_at is None
    return frozenset({attempt_name(run, status.state, status.attempt)}) if own else frozenset()


def give_up(run: str, status: RunStatus, following: RunStatus | None, why: str) -> RunDecision:
    """Ends a run that cannot continue, for a reason that time does not fix, because it would block other runs. Stops the attempt that may
    have been started."""
    at = following if following is not None and following.state in STAGES else status
    stops = tuple(StopStage(attempt) for attempt in sorted(works(run, at)))
    reason = f"{at.state}: {why}"
    return Decision(replace(at, state="failed", reason=reason, retry_at=None, waiting="", waiting_since=None, dead_letter=True), stops)


def _handle_request(run: str, status: RunStatus, request: Request) -> RunDecision:
    if request.verb != "cancel":
        return Decision(status, consumes_request=True, requeue_after=_POLL)
    own = status.state in STAGES and status.attempt > 0
    effects = (StopStage(attempt_name(run, status.state, status.attempt)),) if own else ()
    return Decision(replace(status, state="cancelled", reason=request.summary(), retry_at=None), effects, consumes_request=True)


def _published(run: str, status: RunStatus, observation: RunObservation, plan: RunPlan, now: datetime) -> RunDecision:
    published = observation.published
    assert published is not None
    if published.failure is not None:
        return Decision(replace(status, state="failed", reason=f"{status.state}: {published.failure}"))
    basis = status.basis
    if basis is not None and not published.steady:
        basis = replace(basis, digest="", why=f"{basis.why}; the data changed while it was read".removeprefix("; "))
    done = StageDone(status.state, current(run, status), status.attempt_since or now, now, basis)
    gates = (gate for gate in plan.gates if gate.stage == status.state)
    results = tuple(_accepted(judge(gate, published.metrics, published.serving, published.silence), plan) for gate in gates)
    status = replace(status, stages=(*status.stages, done), gates=(*status.gates, *results))
    refused = [result.reason for result in results if not (result.verdict is Verdict.PASS or result.accepted)]
    if refused:
        return Decision(replace(status, state="rejected", reason="; ".join(refused)))
    following = next_stage(plan.stages, status.state)
    if following is None:
        accepted = [gate.accepted for gate in status.gates if gate.accepted]
        by = " and ".join(dict.fromkeys(accepted))
        reason = f"{len(accepted)} of {len(status.gates)} gates inconclusive, accepted by {by}" if accepted else "all gates passed"
        return Decision(replace(status, state="registered", reason=reason), (RegisterVersion(),))
    return _enter(run, status, following, observation, now)


def _accepted(result: GateResult, plan: RunPlan) -> GateResult:
    """Marks an inconclusive result as accepted; a person cannot accept a failure or an error."""
    if result.verdict is not Verdict.INCONCLUSIVE or result.accepted or not plan.accepts:
        return result
    return replace(result, reason=f"{result.reason}; accepted by {plan.accepts}", accepted=plan.accepts)


def _unpublished(run: str, status: RunStatus, observation: RunObservation, plan: RunPlan, now: datetime) -> RunDecision:
    """Handles an attempt without a manifest: the attempt waits, works, or ended."""
    job, stage = observation.job, status.state
    if status.basis is not None and status.basis.attempt:
        gone = f"artifacts of {status.basis.attempt} are missing or damaged"
        return _start(run, replace(status, basis=replace(status.basis, attempt="", since=None, why=gone)), 1, gone, observation, now)
    if job is None or job.phase == "lost":
        kind = "evicted" if job is not None and job.fault == "evicted" else "lost"
        return _again(run, status, kind, (job.reason if job else "") or "its process was lost", observation, now)
    if job.phase == "waiting":
        return _waiting(run, status, job, plan, now)
    if job.phase == "running":
        limit = plan.timeouts[stage]
        began = job.since or status.attempt_since
        if began is not None and now - began > limit:
            stop = StopStage(current(run, status))
            return _again(run, status, "deadline", f"ran longer than {limit.total_seconds():g} s", observation, now, stop)
        if status.waiting:
            status = replace(status, waiting="", waiting_since=None, reason="")
        return Decision(status, requeue_after=_poll(status.attempt_since, now))
    return _again(run, status, job.fault or "crash", job.reason or "ended without publishing anything", observation, now)


def _waiting(run: str, status: RunStatus, job: Job, plan: RunPlan, now: datetime) -> RunDecision:
    """Handles an attempt that has not begun: its timeout has not started, but the wait has a limit."""
    kind = job.fault if job.fault in POLICIES else "waiting"
    assert kind is not None
    since = status.waiting_since if status.waiting == kind and status.waiting_since else now
    status = replace(status, waiting=kind, waiting_since=since, reason=f"{status.state} waits: {job.reason or 'not begun yet'}")
    waited, limit = (now - since, IMAGE_WAIT) if kind == "image" else (now - (status.attempt_since or since), plan.longest_wait)
    if waited <= limit:
        return Decision(status, requeue_after=_poll(status.attempt_since, now))
    reason = f"{status.state}, attempt {status.attempt}: {job.reason or 'it never began'}; gave up after {_span(limit)}"
    return _give_up(status, reason, kind, (StopStage(current(run, status)),))


def _again(
    run: str, status: RunStatus, kind: str, why: str, observation: RunObservation, now: datetime, *effects: RunEffect
) -> RunDecision:
    """Starts another attempt after a fault, or ends the run."""
    policy = POLICIES[kind]
    reason = f"{status.state}, attempt {status.attempt}: {why}"
    status = replace(status, ended=(*status.ended, kind), waiting="", waiting_since=None)
    own = sum(POLICIES[fault].own for fault in status.ended)
    if not policy.own and len(status.ended) - own >= MAX_LOST:
        return _give_up(status, f"{reason}; gave up after {MAX_LOST} lost attempts", kind, effects)
    same = status.ended.count(kind)
    if own >= MAX_FAULTS or (policy.own and same >= policy.attempts):
        count = f"{own} faults" if own >= MAX_FAULTS else f"{same} attempts"
        return _give_up(status, reason if policy.attempts == 1 else f"{reason}; gave up after {count}", kind, effects)
    pause = policy.pause(same)
    if not pause:
        again = _start(run, status, status.attempt + 1, reason, observation, now)
        return replace(again, effects=(*effects, *again.effects))
    following = replace(status, attempt=status.attempt + 1, retry_at=now + pause, reason=f"{reason}; next attempt in {_span(pause)}")
    return Decision(following, effects, requeue_after=min(_POLL, pause))


def _give_up(status: RunStatus, cause: str, kind: str, effects: tuple[RunEffect, ...]) -> RunDecision:
    advice = POLICIES[kind].advice.format(stage=RESOURCES.get(status.state, status.state))
    reason = f"{cause}: {advice}" if advice else cause
    return Decision(replace(status, state="failed", reason=reason, dead_letter=True), effects)


def _enter(run: str, status: RunStatus, stage: str, observation: RunObservation, now: datetime) -> RunDecision:
    """Enters the next stage: reuses an attempt, or starts the first one."""
    status = replace(status, state=stage, ended=(), waiting="", waiting_since=None, basis=None)
    if observation.ahead is None or not observation.ahead.attempt:
        return _start(run, status, 1, "", observation, now)
    return Decision(
        replace(status, attempt=0, attempt_since=now, basis=observation.ahead, reason=f"reused: {observation.ahead.why}"), (), timedelta(0)
    )


def _start(run: str, status: RunStatus, attempt: int, why: str, observation: RunObservation, now: datetime) -> RunDecision:
    """Starts the attempt; the stage is no longer reused."""
    basis = replace(observation.ahead, attempt="", since=None) if observation.ahead is not None else status.basis
    following = replace(status, attempt=attempt, attempt_since=now, retry_at=None, reason=why, basis=basis)
    return Decision(following, (StartStage(status.state, attempt_name(run, status.state, attempt)),), requeue_after=_POLL)


def _poll(since: datetime | None, now: datetime) -> timedelta:
    """Returns the poll interval: longer for long attempts, with a delay of at most a fortieth of the elapsed time."""
    return _POLL if since is None else min(max((now - since) / 40, _POLL), _LONGEST_POLL)


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and not seconds % size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
