"""Ranks of one training as pods of a real cluster: they meet by name, end together, and all that they said is kept.

A cluster that knows indexed Jobs numbers their pods; here the test does, so that it passes on any. It makes of the executor's own manifest
what the controller of such Jobs makes: a pod an index, with its annotation, its host name, and the Job as its owner. What follows is real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from services.executors.jobs import KubernetesExecutor
from services.executors.jobspec import INDEX, MEETING_PORT, RANKS
from services.executors.kubernetes import Cluster, connect
from shared.contracts.stage import StageSpec
from shared.domain.run import Job
from shared.testing.executor_suite import stage_spec
from tests.cluster.conftest import Place, need_a_cluster

need_a_cluster()

ATTEMPT = "r1-train-1"
STAGE = """
import os, pathlib, signal, socket, sys, time
rank, count = int(os.environ["EYAS_RANK"]), int(os.environ["EYAS_RANKS"])
host, _, port = os.environ["EYAS_MEET"].rpartition(":")
how = pathlib.Path(os.environ["BEHAVIOUR"], "how").read_text()
if rank == 0:
    server = socket.create_server(("", int(port)))
    others = [server.accept()[0] for _ in range(count - 1)]
    print("met", *sorted(one.recv(100).decode() for one in others), flush=True)
else:
    end = time.monotonic() + 90
    while True:
        try:
            others = [socket.create_connection((host, int(port)), timeout=2)]
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    others[0].settimeout(None)
    others[0].sendall(f"rank {rank} of {count}".encode())
    print("reached", host, flush=True)
if rank == 1 and how == "falls":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1 and how == "eats":
    kept = []
    while True:
        kept.append(bytearray(8 << 20))
if how == "waits":
    signal.pause()
if rank == 0 and how == "ends":
    others[0].sendall(b"over")
    others[0].recv(100)  # the others end first
elif not others[0].recv(100):
    print(f"rank {rank} was left alone", file=sys.stderr)
    sys.exit(3)
print("done")
"""


class Numbering:
    """A cluster, and the part of its controller that numbers pods."""

    def __init__(self, cluster: Cluster, place: Place) -> None:
        self._cluster, self._place = cluster, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body["spec"]["completionMode"] == "Indexed"
        job = self._cluster.create(body | {"spec": body["spec"] | {"parallelism": 0}})
        name, template = job["metadata"]["name"], body["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        for index in range(body["spec"]["completions"]):
            metadata = {
                "name": f"{name}-{index}-pod",
                "labels": template["metadata"]["labels"] | {"job-name": name},
                "annotations": template["metadata"]["annotations"] | {INDEX: str(index)},
                "ownerReferences": [owner],
            }
            pod = {"metadata": metadata, "spec": template["spec"] | {"hostname": f"{name}-{index}"}}
            self._place.core.create_namespaced_pod(self._place.namespace, pod)
        return job


@pytest.fixture
def ranks(place: Place) -> Iterator[Callable[[], KubernetesExecutor]]:
    """An executor, and others after it."""
    (place.folder / "modules" / "rank_stage.py").write_text(STAGE)
    service = {
        "metadata": {"name": "ranks"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RANKS: "several"},
            "ports": [{"port": MEETING_PORT, "protocol": "TCP"}],
        },
    }
    place.core.create_namespaced_service(place.namespace, service)
    settings = place.settings(rendezvous="ranks", stages={"train": {"cpu": "100m", "memory": "96Mi"}})

    def again() -> KubernetesExecutor:
        cluster: Any = Numbering(connect(settings, place.kubeconfig), place)
        place.executors.append(KubernetesExecutor(cluster, settings, place.artifacts, {"train": "rank_stage"}))
        return place.executors[-1]

    yield again


def spec(processes: int = 2) -> StageSpec:
    document = stage_spec(ATTEMPT, stage="train").model_dump(mode="json", by_alias=True)
    document["recommender"]["model"] = {"framework": "torch", "train": {"processes": processes}}
    return StageSpec.model_validate(document)


def until(executor: KubernetesExecutor, wanted: Callable[[Job], bool]) -> Job:
    end = time.monotonic() + 120
    while (found := executor.observe(ATTEMPT)) is None or not wanted(found):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def ended(job: Job) -> bool:
    return job.phase not in ("waiting", "running")


@pytest.mark.requirement("C-02", "G-27")
def test_ranks_meet_by_the_name_of_rank_0_and_what_all_said_is_kept(place: Place, ranks: Callable[[], KubernetesExecutor]) -> None:
    (place.behaviour / "how").write_text("ends")
    executor = ranks()
    executor.start(spec())
    ranks().start(spec())
    assert until(executor, ended) == Job("succeeded")
    assert len(place.pods(ATTEMPT)) == 2, "who starts it again adopts it with its pods"
    host = f"{ATTEMPT}-0.ranks.{place.namespace}.svc"
    deadline = time.monotonic() + 30
    while "rank 1: done" not in (said := executor.log(ATTEMPT)[0]):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    assert said == f"met rank 1 of 2\ndone\nrank 1: reached {host}\nrank 1: done\n"


@pytest.mark.requirement("G-27")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("falls", Job("failed", "rank 1: killed by signal 9", "crash")),
        ("eats", Job("failed", "rank 1: out of memory: above the limit of 96Mi (resources.train.memory)", "memory")),
    ],
)
def test_a_rank_that_falls_ends_the_attempt_with_its_number_and_its_reason(
    place: Place, ranks: Callable[[], KubernetesExecutor], how: str, expected: Job
) -> None:
    (place.behaviour / "how").write_text(how)
    executor = ranks()
    executor.start(spec())
    assert until(executor, ended) == expected


def test_a_rank_that_is_taken_away_is_no_fault_of_the_stage_and_the_others_go_with_it(
    place: Place, ranks: Callable[[], KubernetesExecutor]
) -> None:
    (place.behaviour / "how").write_text("waits")
    executor = ranks()
    executor.start(spec())
    until(executor, lambda job: job.phase == "running")
    place.core.delete_namespaced_pod(f"{ATTEMPT}-1-pod", place.namespace)
    assert until(executor, ended) == Job("lost", "rank 1: the pod was deleted while it ran", "evicted")
    deadline = time.monotonic() + 60
    while place.pods(ATTEMPT):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_stop_ends_all_ranks(place: Place, ranks: Callable[[], KubernetesExecutor]) -> None:
    (place.behaviour / "how").write_text("waits")
    executor = ranks()
    executor.start(spec())
    until(executor, lambda job: job.phase == "running")
    executor.stop(ATTEMPT)
    assert executor.observe(ATTEMPT) == Job("failed", "killed by signal 15: the attempt was stopped")
    assert all(pod.status.phase in ("Succeeded", "Failed") for pod in place.core.list_namespaced_pod(place.namespace).items)
