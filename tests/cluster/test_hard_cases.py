"""What only a cluster can do to a stage: each time the right state, with a reason that a person can use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from services.executors.informer import JobInformer
from shared.domain.errors import Conflict, Unavailable
from shared.domain.run import Job
from shared.ports import Executor
from shared.testing.executor_suite import ended, runs, stage_spec
from shared.testing.waiting import wait_for
from tests.cluster.conftest import Place, hook, need_a_cluster, run

need_a_cluster()

pytestmark = pytest.mark.requirement("C-02")
ATTEMPT = "r1-etl-1"


def until(executor: Executor, wanted: Callable[[Job], bool], seconds: float = 90) -> Job:
    """Waits for a state; the cluster may take its time."""
    end, seen = time.monotonic() + seconds, None
    while time.monotonic() < end:
        seen = executor.observe(ATTEMPT)
        assert seen is not None
        if wanted(seen):
            return seen
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s; last seen: {seen}")


def begin(place: Place, how: str, **resources: Any) -> None:
    place.behave(ATTEMPT, how)
    spec = stage_spec(ATTEMPT).model_dump(mode="json", by_alias=True)
    spec["recommender"]["resources"] = {"etl": resources}
    place.executor.start(stage_spec(ATTEMPT).model_validate(spec))


def test_a_stage_may_do_no_more_than_it_should(place: Place) -> None:
    place.core.create_namespaced_secret(place.namespace, {"metadata": {"name": "s3"}, "stringData": {"key": "hush", "REGION": "here"}})
    place.executor = place.again(secret_variables=[{"name": "S3_KEY", "secret": "s3", "key": "key"}], secrets=["s3"])
    begin(place, "tells")
    assert ended(place.executor, ATTEMPT) == Job("succeeded")
    facts = json.loads(place.executor.log(ATTEMPT)[0])
    assert (facts["user"], facts["token"], len(facts["refused"])) == (65532, False, 2)
    assert (facts["environment"]["S3_KEY"], facts["environment"]["REGION"], facts["environment"]["HOME"]) == ("hush", "here", "/scratch")
    assert "hush" not in str(place.jobs.read_namespaced_job(ATTEMPT, place.namespace))


def test_a_failing_stage_says_why_and_leaves_its_log(place: Place) -> None:
    begin(place, "fails")
    assert until(place.executor, lambda job: job.phase == "failed") == Job("failed", "exit code 1: no such file", "crash")
    assert place.executor.log(ATTEMPT)[0] == "something\nno such file\n\n"


def test_a_stage_out_of_memory_names_its_limit_and_the_field_to_raise(place: Place) -> None:
    begin(place, "eats", memory="96Mi")
    job = until(place.executor, lambda job: job.phase not in ("waiting", "running"))
    assert job == Job("failed", "out of memory: above the limit of 96Mi (resources.etl.memory)", "memory")


def test_a_stage_that_takes_too_long_is_ended_by_its_deadline(place: Place) -> None:
    begin(place, "works", timeout="8s")
    job = until(place.executor, lambda job: job.phase not in ("waiting", "running"))
    assert job == Job("failed", "ran longer than 8 s (resources.etl.timeout)", "deadline")


def test_a_stage_waits_for_a_gpu_and_is_then_scheduled(place: Place) -> None:
    free = sum(int(node.status.allocatable.get("nvidia.com/gpu", 0)) for node in place.core.list_node().items)
    if not free:
        pytest.skip("the cluster has no nvidia.com/gpu")
    container = {
        "name": "holder",
        "image": place.settings().image("default"),
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": str(free)}},
    }
    body = {"metadata": {"name": "holder"}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    place.core.create_namespaced_pod(place.namespace, body)
    wait_for_pod(place, "holder")
    begin(place, "succeeds", gpu=1, timeout="60s")
    job = until(place.executor, lambda job: job.fault is not None)
    assert job == Job("waiting", "waits for a node with 1 nvidia.com/gpu: 0 of 1 nodes has it free", "unschedulable")
    place.core.delete_namespaced_pod("holder", place.namespace, grace_period_seconds=0)
    assert until(place.executor, lambda job: job.phase not in ("waiting", "running")) == Job("succeeded")


def wait_for_pod(place: Place, name: str) -> None:
    end = time.monotonic() + 60
    while place.core.read_namespaced_pod(name, place.namespace).status.phase != "Running":
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_missing_image_is_named_with_the_reason(place: Place) -> None:
    place.executor = place.again(images={"default": "localhost/eyas-nothing:1"})
    begin(place, "succeeds")
    job = until(place.executor, lambda job: job.fault == "image" and ": " in job.reason)
    assert job.phase == "waiting"
    assert job.reason.startswith("cannot pull image localhost/eyas-nothing:1: ")
    until(place.executor, lambda job: job.fault == "image" and ": " in job.reason and "Back-off" not in job.reason)
    place.executor.stop(ATTEMPT)
    assert place.executor.observe(ATTEMPT) == Job("failed", "killed by signal 15: the attempt was stopped")


def test_an_exceeded_quota_is_named_and_waited_for(place: Place) -> None:
    quota = {"metadata": {"name": "tight"}, "spec": {"hard": {"limits.memory": "64Mi"}}}
    place.core.create_namespaced_resource_quota(place.namespace, quota)
    place.executor = place.again()
    quota_holds(place)
    begin(place, "succeeds")
    job = until(place.executor, lambda job: job.fault is not None)
    assert (job.phase, job.fault) == ("waiting", "quota")
    assert job.reason == "quota 'tight' is exceeded: requested limits.memory=192Mi, used limits.memory=0 of limits.memory=64Mi"
    place.core.delete_namespaced_resource_quota("tight", place.namespace)
    assert until(place.executor, lambda job: job.phase not in ("waiting", "running")) == Job("succeeded")


def quota_holds(place: Place) -> None:
    end = time.monotonic() + 30
    while not place.core.read_namespaced_resource_quota("tight", place.namespace).status.used:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_missing_secret_is_named(place: Place) -> None:
    place.executor = place.again(secret_variables=[{"name": "KEY", "secret": "nothing-of-the-kind", "key": "key"}])
    begin(place, "succeeds")
    job = until(place.executor, lambda job: "nothing-of-the-kind" in job.reason)
    assert (job.phase, job.fault) == ("waiting", None)


def test_a_pod_that_is_deleted_is_lost_and_nothing_takes_its_place(place: Place) -> None:
    begin(place, "talks")
    runs(place.executor, ATTEMPT)
    (pod,) = place.pods(ATTEMPT)
    place.core.delete_namespaced_pod(pod, place.namespace)
    job = until(place.executor, lambda job: job.phase not in ("waiting", "running"))
    assert (job.phase, job.fault) == ("lost", "evicted")
    end = time.monotonic() + 180  # both pods may take all of their grace
    while place.pods(ATTEMPT):
        assert time.monotonic() < end, "a pod of the lost attempt works on"
        assert place.executor.observe(ATTEMPT) == job
        time.sleep(0.2)
    assert place.executor.observe(ATTEMPT) == job


def test_a_job_that_is_deleted_by_somebody_is_lost(place: Place) -> None:
    begin(place, "works")
    runs(place.executor, ATTEMPT)
    place.jobs.delete_namespaced_job(ATTEMPT, place.namespace, propagation_policy="Background")
    job = until(place.executor, lambda job: job.phase not in ("waiting", "running"))
    assert (job.phase, job.fault) == ("lost", "evicted")


def test_a_log_is_kept_after_its_pod_is_gone(place: Place) -> None:
    place.executor = place.again(ttl="1s")
    begin(place, "succeeds")
    assert ended(place.executor, ATTEMPT) == Job("succeeded")
    end = time.monotonic() + 180  # both pods may take all of their grace
    while place.pods(ATTEMPT):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert place.executor.log(ATTEMPT) == ("hello wörld\n", 13)
    assert place.executor.observe(ATTEMPT) == Job("succeeded"), "its Job was removed after its end"
    later = place.again()
    assert later.log(ATTEMPT, 6) == ("wörld\n", 13)


def test_another_control_plane_adopts_what_works_and_reads_it_to_its_end(place: Place) -> None:
    begin(place, "gate")
    runs(place.executor, ATTEMPT)
    place.executor.close()
    later = place.again()
    later.start(stage_spec(ATTEMPT))
    runs(later, ATTEMPT)
    (place.behaviour / "open").touch()
    assert until(later, lambda job: job.phase not in ("waiting", "running")) == Job("succeeded")
    assert later.log(ATTEMPT)[0] == "at the gate\nthrough\n"
    assert place.starts(ATTEMPT) == 1


def test_two_control_planes_see_each_others_jobs_at_once(place: Place) -> None:
    other = place.again()
    assert other.observe(ATTEMPT) is None
    begin(place, "works")
    assert other.observe(ATTEMPT) is not None
    other.start(stage_spec(ATTEMPT))
    runs(other, ATTEMPT)
    wait_for(lambda: place.starts(ATTEMPT) == 1)
    assert len(place.pods(ATTEMPT)) == 1


def test_a_job_of_that_name_that_is_not_ours_is_never_adopted(place: Place) -> None:
    container = {"name": "other", "image": place.settings().image("default"), "command": ["true"]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    place.jobs.create_namespaced_job(place.namespace, {"metadata": {"name": ATTEMPT}, "spec": {"template": pod}})
    assert place.executor.observe(ATTEMPT) is None
    place.executor.stop(ATTEMPT)
    with pytest.raises(Conflict, match="but is not of this platform"):
        begin(place, "succeeds")
    assert place.jobs.read_namespaced_job(ATTEMPT, place.namespace).metadata.name == ATTEMPT


def test_an_expired_watch_lists_again_and_misses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that the watch goes on from is replaced by one that the API server has long forgotten."""
    lists: list[str] = []
    stale = {"jobs", "pods"}
    original = JobInformer._list

    def listed(self: JobInformer, kind: Any) -> str:
        version = original(self, kind)
        lists.append(kind)
        if kind in stale:
            stale.discard(kind)
            return "1"
        return version

    monkeypatch.setattr(JobInformer, "_list", listed)
    place.executor = place.again()
    begin(place, "succeeds")
    assert until(place.executor, lambda job: job.phase not in ("waiting", "running")) == Job("succeeded")
    assert sorted(lists)[:4] == ["jobs", "jobs", "pods", "pods"]
    assert not stale


def test_an_api_server_that_goes_away_loses_nothing(place: Place) -> None:
    down, up = hook("EYAS_TEST_API_DOWN"), hook("EYAS_TEST_API_UP")
    begin(place, "gate")
    runs(place.executor, ATTEMPT)
    run(down)
    try:
        end = time.monotonic() + 60
        with pytest.raises(Unavailable, match="Kubernetes API"):
            while time.monotonic() < end:
                assert place.executor.observe(ATTEMPT) == Job("running")
        for _ in range(20):
            with pytest.raises(Unavailable):
                place.executor.observe(ATTEMPT)
        with pytest.raises(Unavailable):
            place.executor.start(stage_spec("r2-etl-1"))
        with pytest.raises(Unavailable):
            place.executor.stop(ATTEMPT)
    finally:
        run(up)
    end = time.monotonic() + 90
    while True:
        try:
            assert place.executor.observe(ATTEMPT) == Job("running")
            break
        except Unavailable:
            assert time.monotonic() < end
            time.sleep(0.2)
    (place.behaviour / "open").touch()
    assert until(place.executor, lambda job: job.phase not in ("waiting", "running")) == Job("succeeded")
    assert place.starts(ATTEMPT) == 1
    assert place.executor.log(ATTEMPT)[0] == "at the gate\nthrough\n"
