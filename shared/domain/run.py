"""A run: from a spec to a registered version, one stage after the other.

`refit` runs between evaluate and export where the spec asks for it: the gates judge a candidate of the older part of the data, and what is
exported has learned from all of it.

`decide` is pure. A stage whose parts are unchanged isn't run: an earlier attempt of it stands for it. One that refuses its data ends
the run; one that met trouble is tried again as a new attempt, as `POLICIES` say for that kind of trouble; one that met a gate it can't
pass ends the run as rejected, with the reasons.
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
from shared.domain.stage_reuse import Basis

STAGES = ("etl", "train", "evaluate", "refit", "export", "verify")
RESOURCES: Mapping[str, str] = {"refit": "train"}
"""Whose entry of the spec's `resources` a stage uses, where it has none of its own."""
_REFIT = "refit"
MAX_FAULTS = 3
"""Attempts of a stage that end by their own fault, of whatever kind, before the run gives up."""
MAX_LOST = 20
"""Attempts that are lost with their platform: restarts are no fault of theirs, but a stage that kills its machine must end too."""
LONGEST_WAIT = timedelta(hours=24)
"""For a place to work: a queue in front of scarce machines is no fault."""
IMAGE_WAIT = timedelta(minutes=10)
_POLL = timedelta(milliseconds=250)
_LONGEST_POLL = timedelta(seconds=2)
_QUEUED = timedelta(seconds=5)
"""For what a run in the queue says that it waits for; whose turn has come is looked at without delay."""
_LONGEST_BACKOFF = timedelta(minutes=1)

Fault = Literal["crash", "disk", "memory", "evicted", "image", "unschedulable", "quota", "deadline"]
"""What kind of trouble a job is in: each is met in its own way."""


@dataclass(frozen=True)
class Policy:
    """How an attempt that ended so is met. `attempts` may end so before the run gives up; the next one waits `backoff`, and each one
    after it `growth` times as long. `own`: it counts among the stage's own faults. `advice`: what a person can do in the end."""

    attempts: int = MAX_FAULTS
    backoff: timedelta = timedelta(seconds=1)
    growth: int = 10
    own: bool = True
    advice: str = ""

    def pause(self, ended: int) -> timedelta:
        """Before the next attempt, when so many have ended like this."""
        factor: int = self.growth ** (ended - 1)
        return min(self.backoff * factor, _LONGEST_BACKOFF)


POLICIES: Mapping[str, Policy] = {
    "crash": Policy(),
    "deadline": Policy(advice="raise resources.{stage}.timeout if it is only slow"),
    # The same data needs the same memory: one more try in case the machine was short of it, no more.
    "memory": Policy(attempts=2, advice="raise resources.{stage}.memory"),
    "disk": Policy(attempts=MAX_LOST, growth=2, own=False, advice="free some space on its disk, then retry the run"),
    "evicted": Policy(attempts=MAX_LOST, growth=2, own=False, advice="its machines keep being taken away"),
    "lost": Policy(attempts=MAX_LOST, backoff=timedelta(0), own=False, advice="does it need more memory than there is?"),
    # A new attempt asks for the same image and the same place: what mends it is a person or time, and both are waited for within one.
    "image": Policy(attempts=1, advice="check the image's name and whether this cluster may pull it, then retry the run"),
    "unschedulable": Policy(attempts=1, advice="ask for less under resources.{stage}, or add machines, then retry the run"),
    "quota": Policy(attempts=1, advice="ask for less under resources.{stage}, or raise the quota, then retry the run"),
    "waiting": Policy(attempts=1, advice="see what holds the executor up, then retry the run"),
}
"""By the kind of fault; "lost" is an attempt that nobody knows any more, "waiting" one that never began for no reason given."""

_FORWARD = ("pending", *STAGES, "registered")
MACHINE = Machine(
    "run",
    "pending",
    (
        *(Edge(a, b, "stage published" if a in STAGES else "first in line") for a, b in itertools.pairwise(_FORWARD)),
        Edge("pending", "failed", "can't begin"),
        Edge("evaluate", "export", "stage published; no refit"),
        Edge("evaluate", "rejected", "a quality gate did not pass"),
        Edge("refit", "rejected", "the refitted model ranks surely worse than the candidate"),
        Edge("verify", "rejected", "the served unit did not pass a gate"),
        *(Edge(stage, "failed", "refused its input, or out of attempts") for stage in STAGES),
        *(Edge(state, "cancelled", "asked") for state in ("pending", *STAGES)),
    ),
)
ANSWERS = {state: frozenset({"cancel"}) for state in ("pending", *STAGES)}


@dataclass(frozen=True)
class StageDone:
    """A stage whose output is published: exactly one attempt of it, which may be another run's that stands for it."""

    stage: str
    attempt: str
    started_at: datetime
    ended_at: datetime
    basis: Basis | None = None

    @property
    def reused(self) -> bool:
        return self.basis is not None and self.basis.attempt != ""

    @property
    def began(self) -> datetime:
        """When the attempt began, in whatever run that was."""
        return (self.basis.since if self.basis else None) or self.started_at


@dataclass(frozen=True)
class RunStatus:
    state: str = "pending"
    reason: str = ""
    attempt: int = 0
    """Of the stage under way; 0 while another run's attempt stands for it."""
    ended: tuple[str, ...] = ()
    """How the earlier attempts of this stage ended, by kinds of `POLICIES`."""
    attempt_since: datetime | None = None
    retry_at: datetime | None = None
    """When the attempt starts: it pauses after the one before it."""
    waiting: str = ""
    """What kind of trouble keeps the attempt from beginning its work."""
    waiting_since: datetime | None = None
    basis: Basis | None = None
    """Of the stage under way."""
    stages: tuple[StageDone, ...] = ()
    gates: tuple[GateResult, ...] = ()
    dead_letter: bool = False
    """It gave up after as many attempts, or as long a wait, as there are: nothing that its data or its spec says is known to be wrong."""


@dataclass(frozen=True)
class RunPlan:
    """What the spec says of runs."""

    gates: tuple[Gate, ...]
    timeouts: Mapping[str, timedelta]
    stages: tuple[str, ...] = STAGES
    """Those of this run, in order."""
    longest_wait: timedelta = LONGEST_WAIT
    accepts: str = ""
    """Who has decided that inconclusive gates don't refuse this run."""


@dataclass(frozen=True)
class Published:
    """What the attempt's manifest says, if there is one. `metrics` are all of the run's so far."""

    metrics: Mapping[str, float]
    failure: str | None = None
    serving: bool = False
    """Whether there was a version to compare with."""
    steady: bool = True
    """The data that it read stood still meanwhile."""
    silence: Silence = field(default_factory=Silence)
    """Why some metrics aren't there."""


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
    waits: str | None = None
    """Why a pending run may not begin."""
    job: Job | None = None
    published: Published | None = None
    ahead: Basis | None = None
    """Of the stage that would start now."""
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
    """Registers what the run exported, and starts its rollout."""

    kind: Literal["register_version"] = "register_version"


RunEffect = StartStage | StopStage | RegisterVersion
RunDecision = Decision[RunStatus, RunEffect]


def decide(run: str, status: RunStatus, observation: RunObservation, plan: RunPlan, now: datetime) -> RunDecision:
    if MACHINE.terminal(status.state):
        return Decision(status, consumes_request=observation.request is not None)
    if observation.request is not None:
        return _handle_request(run, status, observation.request)
    if observation.gone:
        if status.state == "pending":  # fails as the stage that it can't start
            return Decision(replace(status, state="etl", reason=observation.gone, attempt=1))
        return Decision(replace(status, state="failed", reason=observation.gone, retry_at=None))
    if status.state == "pending":
        if observation.waits:
            return Decision(replace(status, reason=observation.waits), requeue_after=_QUEUED)
        return _enter(run, status, "etl", observation, now)
    if status.retry_at is not None:
        if timedelta(0) < status.retry_at - now <= _LONGEST_BACKOFF:  # no pause is longer, unless a clock was wrong
            return Decision(status, requeue_after=min(_POLL, status.retry_at - now))
        return _start(run, status, status.attempt, status.reason, observation, now)
    if observation.published is not None:
        return _published(run, status, observation, plan, now)
    return _unpublished(run, status, observation, plan, now)


def current(run: str, status: RunStatus) -> str:
    """The attempt that is, or stands for, the stage under way."""
    if status.basis is not None and status.basis.attempt:
        return status.basis.attempt
    return attempt_name(run, status.state, status.attempt)


def run_stages(refit: bool) -> tuple[str, ...]:
    """The stages of a run, in order."""
    return STAGES if refit else tuple(stage for stage in STAGES if stage != _REFIT)


def next_stage(stages: Sequence[str], stage: str) -> str | None:
    """The one that follows; None after the last."""
    return next(iter(stages[stages.index(stage) + 1 :]), None)


def works(run: str, status: RunStatus) -> frozenset[str]:
    """The attempt that is under way, if one is."""
    own = status.state in STAGES and status.attempt > 0 and status.retry_at is None
    return frozenset({attempt_name(run, status.state, status.attempt)}) if own else frozenset()


def give_up(run: str, status: RunStatus, following: RunStatus | None, why: str) -> RunDecision:
    """A run that can't go on, for a reason that time doesn't mend, ends: it would hold up others for ever. What it was about to start
    may have been started."""
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
        reason = f"{len(accepted)} inconclusive of {len(status.gates)} gates accepted by {by}" if accepted else "all gates passed"
        return Decision(replace(status, state="registered", reason=reason), (RegisterVersion(),))
    return _enter(run, status, following, observation, now)


def _accepted(result: GateResult, plan: RunPlan) -> GateResult:
    """A person may answer for what couldn't be told, never for what failed or broke."""
    if result.verdict is not Verdict.INCONCLUSIVE or result.accepted or not plan.accepts:
        return result
    return replace(result, reason=f"{result.reason}; accepted by {plan.accepts}", accepted=plan.accepts)


def _unpublished(run: str, status: RunStatus, observation: RunObservation, plan: RunPlan, now: datetime) -> RunDecision:
    """No manifest: the attempt waits, works, or ended without one."""
    job, stage = observation.job, status.state
    if status.basis is not None and status.basis.attempt:
        gone = f"what {status.basis.attempt} published is gone or damaged"
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
    """Accepted and not begun: its time hasn't started, and nothing is wrong until it has waited for too long."""
    kind = job.fault if job.fault in POLICIES else "waiting"
    assert kind is not None
    since = status.waiting_since if status.waiting == kind and status.waiting_since else now
    status = replace(status, waiting=kind, waiting_since=since, reason=f"{status.state} waits: {job.reason or 'it has not begun yet'}")
    waited, limit = (now - since, IMAGE_WAIT) if kind == "image" else (now - (status.attempt_since or since), plan.longest_wait)
    if waited <= limit:
        return Decision(status, requeue_after=_poll(status.attempt_since, now))
    reason = f"{status.state}, attempt {status.attempt}: {job.reason or 'it never began'}; gave up after {_span(limit)}"
    return _give_up(status, reason, kind, (StopStage(current(run, status)),))


def _again(
    run: str, status: RunStatus, kind: str, why: str, observation: RunObservation, now: datetime, *effects: RunEffect
) -> RunDecision:
    """The attempt has ended like this: another one, or the end of the run."""
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
    following = replace(status, attempt=status.attempt + 1, retry_at=now + pause, reason=f"{reason}; again in {_span(pause)}")
    return Decision(following, effects, requeue_after=min(_POLL, pause))


def _give_up(status: RunStatus, cause: str, kind: str, effects: tuple[RunEffect, ...]) -> RunDecision:
    advice = POLICIES[kind].advice.format(stage=RESOURCES.get(status.state, status.state))
    reason = f"{cause}: {advice}" if advice else cause
    return Decision(replace(status, state="failed", reason=reason, dead_letter=True), effects)


def _enter(run: str, status: RunStatus, stage: str, observation: RunObservation, now: datetime) -> RunDecision:
    """The next stage: an attempt that stands for it is taken as it is, else its first one starts."""
    status = replace(status, state=stage, ended=(), waiting="", waiting_since=None, basis=None)
    if observation.ahead is None or not observation.ahead.attempt:
        return _start(run, status, 1, "", observation, now)
    return Decision(
        replace(status, attempt=0, attempt_since=now, basis=observation.ahead, reason=f"reused: {observation.ahead.why}"), (), timedelta(0)
    )


def _start(run: str, status: RunStatus, attempt: int, why: str, observation: RunObservation, now: datetime) -> RunDecision:
    """Whatever stood for the stage before, this attempt is made anew."""
    basis = replace(observation.ahead, attempt="", since=None) if observation.ahead is not None else status.basis
    following = replace(status, attempt=attempt, attempt_since=now, retry_at=None, reason=why, basis=basis)
    return Decision(following, (StartStage(status.state, attempt_name(run, status.state, attempt)),), requeue_after=_POLL)


def _poll(since: datetime | None, now: datetime) -> timedelta:
    """When to look again: what takes long is looked at less often, and is late by no more than a fortieth of what it took."""
    return _POLL if since is None else min(max((now - since) / 40, _POLL), _LONGEST_POLL)


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and not seconds % size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
