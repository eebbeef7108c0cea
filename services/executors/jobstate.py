"""State of an attempt from its Job and pods: pure functions of the cluster's objects; each state has a reason for people.

One Job is one attempt. A deleted pod ends the attempt, even if an old cluster replaces the pod.

If one of several ranks fails, the attempt ends, and the other ranks end as a consequence: some notice it (exit code LEFT), some are deleted
by the cluster. The reason names the rank that failed first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from services.executors.jobspec import CONTAINER, INDEX
from services.executors.text import exit_fault, exit_reason
from shared.contracts.ranks import LEFT
from shared.domain.run import RESOURCES, Fault, Job

Object = Mapping[str, Any]

STOPPED = Job("failed", "killed by signal 15: the attempt was stopped")
_IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError"}
)
_UNMADE = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_UNSTARTED = frozenset({"StartError", "ContainerCannotRun"})
_SHORT = re.compile(r"\d+ Insufficient ([\w./-]*\w)")
_NODES = re.compile(r"0/(\d+) nodes are available: (.*?)\.?\s*(?:preemption: .*)?", re.DOTALL)
_QUOTA = re.compile(r"exceeded quota: (.+?), requested: (.+), used: (.+), limited: (.+)", re.DOTALL)
_OVER_ITS_LIMIT = re.compile(r"exceed(?:s|ed) (?:the|its) .*limit")
_SLACK = timedelta(seconds=5)
_SHOWN = 400
_NEWS = timedelta(seconds=30)
"""Time for the report of another node that explains why a rank was left alone."""
_RANK = re.compile(r"(rank \d+: )?(.*)", re.DOTALL)


def state(job: Object, pods: Sequence[Object], now: datetime) -> Job:
    """Returns the state of an attempt. `pods`: all observed pods of the Job; deleted pods in their last known state."""
    pods = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    condition = _true(job, "Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
    if condition is not None and condition["type"] in ("Complete", "SuccessCriteriaMet"):
        return Job("succeeded")
    count = int(job["spec"].get("completions") or 1)
    if count > 1:
        return _judge_ranks(job, pods, count, condition, now)
    ends = [end for pod in pods if (end := _end(job, pod)) is not None]
    bad = next((end for end in ends if end.phase != "succeeded"), None)
    if bad is not None:
        return _overdue(job, now) or bad if bad.phase == "lost" else bad
    return ends[0] if ends else _judge_job(job, pods, count, condition) or _alive(pods[0])


def rank(pod: Object) -> int | None:
    """Returns the rank of a pod of an indexed Job; None for other pods."""
    index = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(index) if index is not None and str(index).isdecimal() else None


def _judge_ranks(job: Object, pods: Sequence[Object], count: int, condition: Object | None, now: datetime) -> Job:
    ends = [_Ended(rank(pod), end, pod) for pod in pods if (end := _end(job, pod)) is not None]
    if any(ended.number == 0 and ended.end.phase == "succeeded" for ended in ends):
        return Job("succeeded")  # rank 0 has published, so the other ranks no longer matter
    bad = sorted((ended for ended in ends if ended.end.phase != "succeeded"), key=lambda ended: ended.blame)
    if bad and (bad[0].began_it or condition is not None or now > bad[0].at + _NEWS):
        return (_overdue(job, now) if bad[0].end.phase == "lost" else None) or bad[0].job
    return _judge_job(job, pods, count, condition) or _judge_alive_ranks(job, pods, count)


def _judge_job(job: Object, pods: Sequence[Object], count: int, condition: Object | None) -> Job | None:
    """Returns the state that follows from the Job itself; None if its pods decide."""
    if condition is not None:
        return _ended_without_a_pod(job, condition, pods)
    if "deletionTimestamp" in job["metadata"]:
        return Job("lost", "the Job was deleted", "evicted")
    if len(pods) > count == 1:
        return Job("lost", "the pod was deleted while it ran", "evicted")
    if job["spec"].get("suspend"):
        return Job("waiting", "the Job is suspended")
    return None if pods else Job("waiting", "the pod is not created yet")


def _judge_alive_ranks(job: Object, pods: Sequence[Object], count: int) -> Job:
    missing = set(range(count)) - {rank(pod) for pod in pods}
    if missing and len(pods) < count:
        return Job("waiting", f"rank {min(missing)}: the pod is not created yet")
    alive = [(rank(pod), _alive(pod)) for pod in pods if _end(job, pod) is None]
    waits = next(((number, rank_job) for number, rank_job in alive if rank_job.phase == "waiting"), None)
    if waits is not None:
        return _named(*waits)
    return Job("running", since=max((rank_job.since for _, rank_job in alive if rank_job.since is not None), default=None))


@dataclass(frozen=True)
class _Ended:
    """An ended rank."""

    number: int | None
    end: Job
    pod: Object

    @property
    def began_it(self) -> bool:
        """Whether the rank ended for its own or its node's reason, not because another rank ended."""
        return self._code != LEFT and not self._deleted

    @property
    def at(self) -> datetime:
        """Time of the end; if the node doesn't report it, the time when the pod was given up."""
        ended = (_container(self.pod).get("state") or {}).get("terminated") or {}
        disrupted = _true(self.pod, "DisruptionTarget") or {}
        times = (ended.get("finishedAt"), disrupted.get("lastTransitionTime"), self.pod["metadata"].get("deletionTimestamp"))
        return next((at for value in times if (at := _time(value)) is not None), datetime.max.replace(tzinfo=UTC) - _NEWS)

    @property
    def blame(self) -> tuple[bool, bool, datetime]:
        """Sort key, the first rank is to blame: ranks that ended for their own reason, then deleted ranks, then LEFT; each by time."""
        return not self.began_it, self._code == LEFT, self.at

    @property
    def job(self) -> Job:
        return _named(self.number, self.end)

    @property
    def _code(self) -> int:
        ended = (_container(self.pod).get("state") or {}).get("terminated") or {}
        return int(ended.get("exitCode", -1)) if self.end.phase == "failed" else -1

    @property
    def _deleted(self) -> bool:
        return self.end.phase == "lost" and "deletionTimestamp" in self.pod["metadata"] and _true(self.pod, "DisruptionTarget") is None


def _named(number: int | None, job: Job) -> Job:
    return job if number is None else replace(job, reason=f"rank {number}: {job.reason}")


def gone(last_state: Job) -> Job:
    """Returns the state of a Job that no longer exists, from its last state."""
    return last_state if last_state.phase not in ("waiting", "running") else Job("lost", "the Job was deleted while it ran", "evicted")


def explain(job: Job, events: Sequence[Object]) -> Job:
    """Adds the cluster's warnings, newest first, to the reason of a waiting attempt."""
    named = _RANK.fullmatch(job.reason)
    assert named is not None
    explained = _explained(replace(job, reason=named[2]), events)
    return replace(explained, reason=(named[1] or "") + explained.reason)


def _explained(job: Job, events: Sequence[Object]) -> Job:
    warnings = [(str(event.get("reason", "")), _line(str(event.get("message", "")))) for event in events]
    refused = next((message for reason, message in warnings if reason == "FailedCreate"), None)
    if job.reason == "the pod is not created yet" and refused is not None:
        return Job("waiting", *_refused(refused))
    if job.fault == "image" and job.reason.endswith(_NO_CAUSE):
        cause = next(
            (message for reason, message in warnings if reason == "Failed" and "pull" in message and "Error: " not in message), None
        )
        return Job("waiting", f"{job.reason.removesuffix(_NO_CAUSE)}: {cause}", "image") if cause else job
    if job.reason == _BEING_MADE:
        cause = next((message for reason, message in warnings if reason.startswith("Failed")), None)
        return Job("waiting", f"{_BEING_MADE}: {cause}") if cause else job
    return job


_NO_CAUSE = " (the cluster retries)"
_BEING_MADE = "the container is being created"


def _refused(message: str) -> tuple[str, Fault | None]:
    quota = _QUOTA.search(message)
    if quota:
        name, requested, used, limited = (part.strip() for part in quota.groups())
        return f"quota '{name}' is exceeded: requested {requested}, used {used} of {limited}", "quota"
    if "quota" in message:
        return f"the quota forbids the pod: {message}", "quota"
    return f"cannot create the pod: {message}", None


def _ended_without_a_pod(job: Object, condition: Object, pods: Sequence[Object]) -> Job:
    """Returns the state of a failed Job if no pod gives a reason."""
    if condition.get("reason") == "DeadlineExceeded":
        return _deadline(job)
    if pods:
        return _alive(pods[0])  # the pod's events have not arrived yet
    return Job("lost", "the pod is missing", "evicted")


def _overdue(job: Object, now: datetime) -> Job | None:
    """Returns the state of an overdue Job: the cluster deletes its pod before it reports the deadline."""
    started, limit = _time(job.get("status", {}).get("startTime")), job["spec"].get("activeDeadlineSeconds")
    if started is None or limit is None or now < started + timedelta(seconds=int(limit)) - _SLACK:
        return None
    return _deadline(job)


def _deadline(job: Object) -> Job:
    return Job("failed", f"not ended {job['spec'].get('activeDeadlineSeconds')} s after the Job's creation, waiting included", "deadline")


def _end(job: Object, pod: Object) -> Job | None:
    """Returns how the pod ended; None if it has not ended."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    phase, why, message = status.get("phase"), status.get("reason", ""), _line(status.get("message", ""))
    if phase == "Succeeded":
        return Job("succeeded")
    if phase != "Failed":
        return Job("lost", "the pod was deleted while it ran", "evicted") if "deletionTimestamp" in metadata else None
    if why == "DeadlineExceeded":
        return Job("failed", f"ran longer than {pod['spec'].get('activeDeadlineSeconds')} s ({_field(job, 'timeout')})", "deadline")
    if why == "Evicted" and _OVER_ITS_LIMIT.search(message):
        return Job("failed", f"used more disk than the limit: {message}", "crash")
    disrupted = _true(pod, "DisruptionTarget")
    if disrupted is not None or why:
        reason = message or _line((disrupted or {}).get("message", "")) or str(why)
        return Job("lost", f"the pod was disrupted: {reason}", "evicted")
    return _exited(job, pod)


def _exited(job: Object, pod: Object) -> Job:
    ended = (_container(pod).get("state") or {}).get("terminated") or {}
    code, message = int(ended.get("exitCode", -1)), str(ended.get("message", ""))
    if ended.get("reason") == "OOMKilled":
        return Job("failed", f"out of memory: above the limit of {_limit(pod, 'memory')} ({_field(job, 'memory')})", "memory")
    if _taken_away(pod, _time(ended.get("finishedAt"))):
        return Job("lost", "the pod was deleted while it ran", "evicted")
    if not ended:
        return Job("failed", "the pod failed without a message", "crash")
    if ended.get("reason") in _UNSTARTED:
        return Job("failed", f"the container cannot start: {_line(message)}", "crash")
    if 128 < code <= 192:
        return Job("failed", f"killed by signal {code - 128}", "crash")
    return Job("failed", exit_reason(code, message), exit_fault(code))


def _taken_away(pod: Object, finished: datetime | None) -> bool:
    """Whether the pod ended because of its deletion, not before."""
    deleted = _time(pod["metadata"].get("deletionTimestamp"))
    if deleted is None:
        return False
    requested_at = deleted - timedelta(seconds=int(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
    return finished is None or finished >= requested_at


def _alive(pod: Object) -> Job:
    """Returns the state of a pod that has not ended."""
    if pod.get("status", {}).get("phase", "Pending") != "Pending":
        running = (_container(pod).get("state") or {}).get("running") or {}
        return Job("running", since=_time(running.get("startedAt")))
    scheduled = next((condition for condition in _conditions(pod) if condition["type"] == "PodScheduled"), None)
    if scheduled is None or scheduled["status"] != "True":
        if scheduled is not None and scheduled.get("reason") == "Unschedulable":
            return Job("waiting", _short_of(pod, _line(scheduled.get("message", ""))), "unschedulable")
        return Job("waiting", _line((scheduled or {}).get("message", "")) or "waits for a node")
    waiting = (_container(pod).get("state") or {}).get("waiting") or {}
    why, message = waiting.get("reason", ""), _line(waiting.get("message", ""))
    image = next((container["image"] for container in pod["spec"]["containers"] if container["name"] == CONTAINER), "")
    if why in _IMAGE:
        cause = _NO_CAUSE if not message or message.startswith("Back-off") else f": {message}"
        return Job("waiting", f"cannot pull image {image}{cause}", "image")
    if why in _UNMADE:
        return Job("waiting", f"cannot create the container: {message}")
    return Job("waiting", _BEING_MADE)


def _short_of(pod: Object, message: str) -> str:
    """Returns which resource no node has free, from the scheduler's message."""
    match = _NODES.fullmatch(message)
    short = list(dict.fromkeys(_SHORT.findall(message)))
    if match is None or not short:
        return f"waits for a node: {message}"
    wanted = " and ".join(f"{_limit(pod, name, 'requests')} {name}" for name in short)
    others = [part.strip() for part in re.split(r",\s+(?=\d+ )", match[2]) if not _SHORT.search(part)]
    besides = f" (also: {', '.join(others)})" if others else ""
    return f"waits for a node with {wanted}: 0 of {match[1]} nodes have enough free{besides}"


def _field(job: Object, name: str) -> str:
    """Returns the field of the spec that a user can raise."""
    stage = job["metadata"].get("labels", {}).get("eyas.dev/stage", "STAGE")
    return f"resources.{RESOURCES.get(stage, stage)}.{name}"


def _limit(pod: Object, name: str, kind: str = "limits") -> str:
    amounts: Object = next(
        (container.get("resources", {}).get(kind, {}) for container in pod["spec"]["containers"] if container["name"] == CONTAINER), {}
    )
    return str(amounts.get(name, "?"))


def _container(pod: Object) -> Object:
    statuses: Sequence[Object] = pod.get("status", {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] == CONTAINER), {})


def _conditions(thing: Object) -> Sequence[Object]:
    conditions: Sequence[Object] = thing.get("status", {}).get("conditions") or ()
    return conditions


def _true(thing: Object, *types: str) -> Object | None:
    return next((condition for condition in _conditions(thing) if condition["type"] in types and condition["status"] == "True"), None)


def _time(value: Any) -> datetime | None:
    return datetime.fromisoformat(str(value)) if value else None


def _line(message: Any) -> str:
    line = " ".join(str(message or "").split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
