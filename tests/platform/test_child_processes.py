"""What the embedded platform does when its child processes die, and how it ends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.platform.conftest import Copy
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import quick_spec, spec
from tests.support.torch_available import torchrec


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, copy_of_trained: Copy) -> Iterator[PlatformProcess]:
    """A platform whose children may be killed."""
    with copy_of_trained(tmp_path_factory.mktemp("own")) as running:
        until("the model answers", running.model_answer)
        yield running
        assert running.stop() == 0
        assert running.shared_memory() == set()


@pytest.mark.requirement("C-05", "C-09")
def test_a_killed_stage_is_tried_again(own: PlatformProcess) -> None:
    run = start(own, quick_spec(own.data, name="killed-stage"))
    until("the training process", lambda: own.kill_child("pipelines.stages.train"))
    found = own.wait_for_run(run, "registered")
    assert found["stages"][1]["attempt"] == f"{run}-train-2"
    own.wait_for_rollout(found["rollout"], "promoted")


@pytest.mark.requirement("C-05", "C-09")
def test_a_killed_triton_returns_with_its_versions(own: PlatformProcess) -> None:
    answer = until("the model answers", own.model_answer)
    assert own.kill_child("bin/tritonserver")
    degraded = own.post("/v1/recommend/movies", {"user": 1})
    assert degraded["items"]
    assert until("the model answers again", own.model_answer)["items"] == answer["items"]


def test_a_cancelled_run_ends_its_process(own: PlatformProcess) -> None:
    run = start(own, spec(own.data, epochs=500, name="cancelled"))
    until("the training process", lambda: own.children_with("pipelines.stages.train"))
    own.post(f"/v1/runs/{run}:cancel", {"reason": "wrong data"})
    assert own.wait_for_run(run, "cancelled")["reason"].endswith("wrong data")
    until("no process is left", lambda: not own.children_with("pipelines.stages"))


def test_a_stage_that_takes_too_long_is_stopped(own: PlatformProcess) -> None:
    run = start(own, spec(own.data, epochs=500, resources={"train": {"timeout": "200ms"}}, name="hurried"))
    found = own.wait_for_run(run, "failed")
    assert found["reason"].startswith("train, attempt 3: ran longer than 0.2 s; gave up")
    assert not own.children_with("pipelines.stages")


@pytest.mark.requirement("G-24", "G-27")
def test_a_version_that_two_processes_trained_with_tables_by_row_answers(own: PlatformProcess) -> None:
    torchrec()
    train = {"epochs": 2, "batch_size": 512, "processes": 2, "shard": "row", "optimizer": "adagrad"}
    model = {"framework": "torch", "params": {"layers": [16], "width": 8}, "train": train}
    found = own.wait_for_run(start(own, spec(own.data, model=model, name="two-processes")), "registered")
    assert found["stages"][1]["attempt"].endswith("-train-1")
    own.wait_for_rollout(found["rollout"], "promoted")
    assert until("the model answers", lambda: own.model_answer("two-processes"))["items"]


def start(platform: PlatformProcess, document: dict[str, Any]) -> str:
    return str(platform.post("/v1/recommenders", document)["run"])
