"""What the cluster's objects mean, on objects of the shape that a cluster gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.executors.jobstate import explain, gone, state
from shared.contracts.ranks import LEFT
from shared.domain.run import Job

NOW = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)
AT = "2026-11-21T12:05:40Z"
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}


def job(*conditions: dict[str, Any], stage: str = "train", completions: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "r1-train-1", "uid": "j1", "labels": {"eyas.dev/stage": stage}, **metadata},
        "spec": {"completions": completions, "activeDeadlineSeconds": 7200},
        "status": {"startTime": AT, "conditions": list(conditions)},
    }


def pod(phase: str = "Pending", created: str = AT, **more: Any) -> dict[str, Any]:
    container = {"name": "stage", "image": "eyas:1", "resources": {"limits": LIMITS, "requests": LIMITS}}
    status = {key: value for key, value in more.items() if key in ("reason", "message", "conditions")} | {"phase": phase}
    if "state" in more:
        status["containerStatuses"] = [{"name": "stage", "state": more["state"]}]
    metadata = {key: value for key, value in more.items() if key.startswith("deletion")}
    return {
        "metadata": {"name": "p", "creationTimestamp": created, **metadata},
        "spec": {"containers": [container], "activeDeadlineSeconds": 3600},
        "status": status,
    }


LIMITS = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def exited(code: int, message: str = "", reason: str = "Error", finished: str = "2026-11-21T12:05:46Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": AT, "finishedAt": finished}}


def unscheduled(message: str) -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}])


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return pod(conditions=[SCHEDULED], state={"waiting": {"reason": reason, "message": message}})


CASES: list[tuple[str, dict[str, Any], list[dict[str, Any]], Job]] = [
    ("no pod yet", job(), [], Job("waiting", "the pod is not created yet")),
    ("no node yet", job(), [pod()], Job("waiting", "waits for a node")),
    ("being made", job(), [waiting("ContainerCreating")], Job("waiting", "the container is being created")),
    ("runs", job(), [pod("Running", state={"running": {"startedAt": AT}})], Job("running")),
    ("succeeded, told by the pod", job(), [pod("Succeeded", state=exited(0))], Job("succeeded")),
    ("succeeded, told by the Job alone", job({"type": "Complete", "status": "True"}), [], Job("succeeded")),
    (
        "exit code",
        job(FAILED),
        [pod("Failed", state=exited(1, "hello\nno such file\n\n"))],
        Job("failed", "exit code 1: no such file", "crash"),
    ),
    ("silent", job(), [pod("Failed", state=exited(2))], Job("failed", "exit code 2 without output", "crash")),
    ("killed", job(), [pod("Failed", state=exited(137))], Job("failed", "killed by signal 9", "crash")),
    (
        "no interpreter",
        job(),
        [pod("Failed", state=exited(128, 'exec: "python": not found', "StartError"))],
        Job("failed", 'the container cannot start: exec: "python": not found', "crash"),
    ),
    (
        "out of memory",
        job(FAILED),
        [pod("Failed", state=exited(137, reason="OOMKilled"))],
        Job("failed", "out of memory: above the limit of 16Gi (resources.train.memory)", "memory"),
    ),
    (
        "too slow",
        job(FAILED),
        [pod("Failed", reason="DeadlineExceeded", message="Pod was active on the node longer than ...", state=exited(143))],
        Job("failed", "ran longer than 3600 s (resources.train.timeout)", "deadline"),
    ),
    (
        "waited too long",
        job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}),
        [],
        Job("failed", "not ended 7200 s after the Job's creation, waiting included", "deadline"),
    ),
    (
        "a GPU is short",
        job(),
        [unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")],
        Job("waiting", "waits for a node with 1 nvidia.com/gpu: 0 of 1 nodes have enough free", "unschedulable"),
    ),
    (
        "two things are short, and there are taints",
        job(),
        [
            unscheduled(
                "0/5 nodes are available: 1 Insufficient memory, 2 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {a: b}. "
                "preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod."
            )
        ],
        Job(
            "waiting",
            "waits for a node with 16Gi memory and 1 nvidia.com/gpu: 0 of 5 nodes have enough free"
            " (also: 2 node(s) had untolerated taint {a: b})",
            "unschedulable",
        ),
    ),
    (
        "no node is wanted by its selector",
        job(),
        [unscheduled("0/1 nodes are available: 1 node(s) didn't match node selector.")],
        Job("waiting", "waits for a node: 0/1 nodes are available: 1 node(s) didn't match node selector.", "unschedulable"),
    ),
    (
        "no image, with its cause",
        job(),
        [waiting("ErrImagePull", 'failed to resolve "eyas:1": connection refused')],
        Job("waiting", 'cannot pull image eyas:1: failed to resolve "eyas:1": connection refused', "image"),
    ),
    (
        "no image, for a while",
        job(),
        [waiting("ImagePullBackOff", 'Back-off pulling image "eyas:1"')],
        Job("waiting", "cannot pull image eyas:1 (the cluster retries)", "image"),
    ),
    (
        "a Secret is missing",
        job(),
        [waiting("CreateContainerConfigError", 'secret "s3" not found')],
        Job("waiting", 'cannot create the container: secret "s3" not found'),
    ),
    (
        "evicted",
        job(FAILED),
        [pod("Failed", reason="Evicted", message="The node was low on resource: memory. Container stage exceeds its request of 0. ")],
        Job("lost", "the pod was disrupted: The node was low on resource: memory. Container stage exceeds its request of 0.", "evicted"),
    ),
    (
        "its own disk use",
        job(FAILED),
        [pod("Failed", reason="Evicted", message='Usage of EmptyDir volume "scratch" exceeds the limit "20Gi".')],
        Job("failed", 'used more disk than the limit: Usage of EmptyDir volume "scratch" exceeds the limit "20Gi".', "crash"),
    ),
    (
        "preempted",
        job(FAILED),
        [pod("Failed", conditions=[{"type": "DisruptionTarget", "status": "True", "message": "preempted by a pod"}], state=exited(143))],
        Job("lost", "the pod was disrupted: preempted by a pod", "evicted"),
    ),
    (
        "being deleted",
        job(),
        [pod("Running", deletionTimestamp="2026-11-21T12:06:25Z", deletionGracePeriodSeconds=30)],
        Job("lost", "the pod was deleted while it ran", "evicted"),
    ),
    (
        "deleted, and it ended of that",
        job(FAILED),
        [pod("Failed", state=exited(143), deletionTimestamp="2026-11-21T12:06:10Z", deletionGracePeriodSeconds=30)],
        Job("lost", "the pod was deleted while it ran", "evicted"),
    ),
    (
        "ended, then removed",
        job(FAILED),
        [pod("Failed", state=exited(1, "no such file"), deletionTimestamp="2026-11-21T12:09:10Z", deletionGracePeriodSeconds=0)],
        Job("failed", "exit code 1: no such file", "crash"),
    ),
    (
        "replaced by an old cluster",
        job(),
        [
            pod("Running", created="2026-11-21T12:06:00Z", state={"running": {"startedAt": AT}}),
            pod("Running", deletionTimestamp="2026-11-21T12:06:25Z"),
        ],
        Job("lost", "the pod was deleted while it ran", "evicted"),
    ),
    ("its pod is gone", job(FAILED), [], Job("lost", "the pod is missing", "evicted")),
    ("the Job's news run ahead of its pod's", job(FAILED), [pod("Running", state={"running": {"startedAt": AT}})], Job("running")),
    ("suspended", {**job(), "spec": {"suspend": True}}, [], Job("waiting", "the Job is suspended")),
    ("deleted", job(deletionTimestamp=AT), [pod("Running")], Job("lost", "the Job was deleted", "evicted")),
]  # fmt: skip


def test_the_state_of_a_job_with_one_pod(subtests: pytest.Subtests) -> None:
    for name, of, pods, expected in CASES:
        with subtests.test(name):
            assert state(of, pods, NOW) == expected


def rank(number: int, phase: str = "Pending", created: str = AT, **more: Any) -> dict[str, Any]:
    found = pod(phase, created, **more)
    found["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": str(number)}
    return found


def left(number: int, finished: str = "2026-11-21T12:05:46Z") -> dict[str, Any]:
    return rank(number, "Failed", state=exited(LEFT, f"train: rank {number} was left alone", finished=finished))


WORKS = {"running": {"startedAt": AT}}
SOON, LATER = "2026-11-21T12:09:58Z", "2026-11-21T12:09:59Z"
GIVEN_UP = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
    "lastTransitionTime": SOON,
}
RANKED: list[tuple[str, dict[str, Any], list[dict[str, Any]], Job]] = [
    ("no pod yet", job(completions=2), [], Job("waiting", "the pod is not created yet")),
    ("one missing", job(completions=3), [rank(0, "Running", state=WORKS), rank(2)], Job("waiting", "rank 1: the pod is not created yet")),
    ("one waits", job(completions=2), [rank(0, "Running", state=WORKS), rank(1)], Job("waiting", "rank 1: waits for a node")),
    ("all work", job(completions=2), [rank(0, "Running", state=WORKS), rank(1, "Running", state=WORKS)], Job("running")),
    ("another is done", job(completions=2), [rank(0, "Running", state=WORKS), rank(1, "Succeeded", state=exited(0))], Job("running")),
    ("rank 0 is done", job(completions=2), [rank(0, "Succeeded", state=exited(0)), rank(1, "Running", state=WORKS)], Job("succeeded")),
    (
        "the cluster has seen rank 0 succeed, and ends another one",
        job({"type": "SuccessCriteriaMet", "status": "True"}, completions=2),
        [rank(1, "Running", deletionTimestamp=AT)],
        Job("succeeded"),
    ),
    (
        "a rank was out of memory, and the others are ended for it",
        job(FAILED, completions=3),
        [
            rank(0, "Running", deletionTimestamp=LATER, state=WORKS),
            rank(1, "Failed", state=exited(137, reason="OOMKilled", finished=SOON)),
            left(2, LATER),
        ],
        Job("failed", "rank 1: out of memory: above the limit of 16Gi (resources.train.memory)", "memory"),
    ),
    (
        "who fell first is to blame",
        job(FAILED, completions=2),
        [rank(0, "Failed", state=exited(1, "reset by peer", finished=LATER)), rank(1, "Failed", state=exited(137, finished=SOON))],
        Job("failed", "rank 1: killed by signal 9", "crash"),
    ),
    (
        "an evicted rank is no fault of the stage, though another one noticed",
        job(FAILED, completions=2),
        [left(0), rank(1, "Failed", conditions=[GIVEN_UP], state=exited(143, finished=SOON))],
        Job("lost", "rank 1: the pod was disrupted: Eviction API: evicting", "evicted"),
    ),
    (
        "a rank was deleted",
        job(completions=2),
        [rank(0, "Running", state=WORKS), rank(1, "Running", deletionTimestamp="2026-11-21T12:06:00Z", state=WORKS)],
        Job("lost", "rank 1: the pod was deleted while it ran", "evicted"),
    ),
    ("a rank was left, and why isn't known yet", job(completions=2), [left(0, LATER), rank(1, "Running", state=WORKS)], Job("running")),
    (
        "a rank was left, and nothing more was heard",
        job(completions=2),
        [left(0), rank(1, "Running", state=WORKS)],
        Job("failed", "rank 0: exit code 3: train: rank 0 was left alone", "crash"),
    ),
    (
        "a rank was left, and the cluster has given up",
        job(FAILED, completions=2),
        [left(0, LATER), rank(1, "Running", state=WORKS)],
        Job("failed", "rank 0: exit code 3: train: rank 0 was left alone", "crash"),
    ),
    (
        "rank 0 has refused its data",
        job(FAILED, completions=2),
        [rank(0, "Failed", state=exited(2, "refused: no rows")), left(1, LATER)],
        Job("failed", "rank 0: exit code 2: refused: no rows", "crash"),
    ),
    ("a Job that waited too long", job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}, completions=2), [],
     Job("failed", "not ended 7200 s after the Job's creation, waiting included", "deadline")),
    ("deleted", job(deletionTimestamp=AT, completions=2), [rank(0, "Running", state=WORKS)], Job("lost", "the Job was deleted", "evicted")),
]  # fmt: skip


@pytest.mark.requirement("C-02", "G-27")
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "the other way round"])
def test_the_state_of_a_job_of_several_ranks(turned: bool, subtests: pytest.Subtests) -> None:
    for name, of, pods, expected in RANKED:
        with subtests.test(name):
            found = state(of, pods[::-1] if turned else pods, NOW)
            assert replace(found, since=None) == expected


def test_several_ranks_work_since_the_last_of_them_began() -> None:
    later = {"running": {"startedAt": "2026-11-21T12:07:00Z"}}
    found = state(job(completions=2), [rank(0, "Running", state=WORKS), rank(1, "Running", state=later)], NOW)
    assert found.since == datetime(2026, 11, 21, 12, 7, tzinfo=UTC)


def test_why_a_rank_waits_is_told_with_its_number() -> None:
    missing = state(job(completions=2), [rank(0, "Running", state=WORKS)], NOW)
    quota = "exceeded quota: small, requested: memory=8Gi, used: memory=8Gi, limited: memory=8Gi"
    said = f'Error creating: pods "r1-train-1-1-x" is forbidden: {quota}'
    found = explain(missing, [{"reason": "FailedCreate", "message": said}])
    assert found == Job("waiting", "rank 1: quota 'small' is exceeded: requested memory=8Gi, used memory=8Gi of memory=8Gi", "quota")


def test_work_begins_when_its_container_does() -> None:
    assert state(job(), [pod("Running", state={"running": {"startedAt": AT}})], NOW).since == datetime(2026, 11, 21, 12, 5, 40, tzinfo=UTC)


def test_a_pod_that_an_overdue_job_takes_away_met_a_deadline() -> None:
    deleted = [pod(deletionTimestamp="2026-11-21T14:05:40Z")]
    later = datetime(2026, 11, 21, 14, 5, 41, tzinfo=UTC)
    assert state(job(), deleted, later).fault == "deadline"
    assert state(job(), deleted, NOW).fault == "evicted"


def event(reason: str, message: str) -> dict[str, str]:
    return {"reason": reason, "message": message}


def test_an_exceeded_quota_says_which_and_by_how_much() -> None:
    said = (
        'Error creating: pods "r1-train-1-x" is forbidden: exceeded quota: tight, '
        "requested: limits.memory=16Gi, used: limits.memory=0, limited: limits.memory=1Gi"
    )
    found = explain(state(job(), [], NOW), [event("FailedCreate", said)])
    expected = "quota 'tight' is exceeded: requested limits.memory=16Gi, used limits.memory=0 of limits.memory=1Gi"
    assert found == Job("waiting", expected, "quota")


def test_other_refusals_of_a_pod_are_told_as_they_are() -> None:
    found = explain(state(job(), [], NOW), [event("FailedCreate", 'Error creating: serviceaccount "x" not found')])
    assert found == Job("waiting", 'cannot create the pod: Error creating: serviceaccount "x" not found')


def test_the_cause_of_a_missing_image_is_found_in_the_warnings() -> None:
    seen = state(job(), [waiting("ImagePullBackOff", 'Back-off pulling image "eyas:1"')], NOW)
    found = explain(seen, [event("Failed", "Error: ImagePullBackOff"), event("Failed", 'Failed to pull image "eyas:1": unauthorized')])
    assert found == Job("waiting", 'cannot pull image eyas:1: Failed to pull image "eyas:1": unauthorized', "image")
    assert explain(seen, []) == seen


def test_a_volume_that_cannot_be_mounted_is_told() -> None:
    found = explain(state(job(), [waiting("ContainerCreating")], NOW), [event("FailedMount", 'secret "keys" not found')])
    assert found == Job("waiting", 'the container is being created: secret "keys" not found')


def test_a_job_that_is_gone_keeps_its_end_and_loses_its_work() -> None:
    assert gone(Job("succeeded")) == Job("succeeded")
    assert gone(Job("failed", "exit code 1: x", "crash")) == Job("failed", "exit code 1: x", "crash")
    assert gone(Job("running")) == Job("lost", "the Job was deleted while it ran", "evicted")
