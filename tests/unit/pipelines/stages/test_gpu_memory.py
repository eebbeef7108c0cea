"""TensorFlow's share of a GPU's memory, by a call, the environment or a spec. TensorFlow itself is simulated here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.models import runtime
from pipelines.models.runtime import GPU_MEMORY, cap_gpu_memory, load_tensorflow
from pipelines.stages import runner
from pipelines.stages.runner import Context
from shared.contracts.stage import StageSpec
from shared.domain.errors import Conflict, Invalid
from shared.stage_process import Outcome
from tests.unit.pipelines import recommender


@pytest.fixture
def capped(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What each of two GPUs is capped to, in MiB."""
    found = dict[str, float]()
    gpus = [SimpleNamespace(name="GPU:0"), SimpleNamespace(name="GPU:1")]

    def configure(gpu: Any, logical: Any) -> None:
        found[gpu.name] = logical[0].memory_limit

    config = SimpleNamespace(
        list_physical_devices=lambda kind=None: gpus if kind == "GPU" else [],
        set_logical_device_configuration=configure,
        LogicalDeviceConfiguration=lambda memory_limit: SimpleNamespace(memory_limit=memory_limit),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.delenv(GPU_MEMORY, raising=False)
    return found


@pytest.mark.requirement("T-11")
def test_every_gpu_is_capped(capped: dict[str, float]) -> None:
    cap_gpu_memory(8 * 2**30)
    assert capped == {"GPU:0": 8192, "GPU:1": 8192}


def test_a_cap_after_the_first_use_of_a_gpu_is_refused(capped: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> None:
        raise RuntimeError("Virtual devices cannot be modified after being initialized")

    monkeypatch.setattr(load_tensorflow().config, "set_logical_device_configuration", late)
    with pytest.raises(Conflict, match="TensorFlow already uses GPU:0: limit its memory before"):
        cap_gpu_memory(2**30)


@pytest.mark.requirement("T-11")
def test_the_environment_caps_tensorflow_when_it_is_loaded_first(capped: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_MEMORY, "512Mi")
    tf = load_tensorflow()
    assert capped == {}, "it is there already: who loaded it has said what it may take"
    monkeypatch.setattr(runtime, "_loaded", lambda: False)
    assert load_tensorflow() is tf
    assert capped == {"GPU:0": 512, "GPU:1": 512}
    monkeypatch.setenv(GPU_MEMORY, "half")
    with pytest.raises(Invalid, match="EYAS_GPU_MEMORY: expected an amount of memory such as 512Mi"):
        load_tensorflow()


def run_stage(folder: Path, monkeypatch: pytest.MonkeyPatch, resources: dict[str, Any], work: Callable[[Context], Outcome]) -> Any:
    """Runs a train stage, and returns its exit code."""
    spec = StageSpec(
        stage="train",
        run="r",
        attempt="r-train-1",
        recommender=recommender.spec(folder, resources=resources),
        data_roots=(str(folder),),
        artifacts=str(folder / "artifacts"),
        inputs={},
    )
    (folder / "spec.json").write_text(spec.model_dump_json(by_alias=True))
    monkeypatch.setattr(sys, "argv", ["train", "--spec", str(folder / "spec.json")])
    with pytest.raises(SystemExit) as ended:
        runner.main("train", work)
    return ended.value.code


@pytest.mark.requirement("T-11")
@pytest.mark.parametrize(("resources", "wanted"), [({"train": {"gpu_memory": "6Gi"}}, "6Gi"), ({}, "2Gi")])
def test_a_spec_says_what_its_stage_takes_and_else_its_surroundings(
    resources: dict[str, Any], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ((GPU_MEMORY, "2Gi"), ("TF_CPP_MIN_LOG_LEVEL", "2"), ("KERAS_BACKEND", "tensorflow")):
        monkeypatch.setenv(name, value)
    seen = list[str]()

    def work(_: Context) -> Outcome:
        seen.append(os.environ[GPU_MEMORY])
        return Outcome()

    assert (run_stage(tmp_path, monkeypatch, resources, work), seen) == (0, [wanted])


@pytest.mark.parametrize(("here", "warned"), [([], True), ([8 << 30], False)])
def test_a_stage_on_a_machine_without_a_gpu_says_that_it_runs_on_the_cpu(
    here: list[int], warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "gpu_sizes", lambda: here)
    assert run_stage(tmp_path, monkeypatch, {"train": {"gpu": 1}}, lambda _: Outcome()) == 0
    warning = "gpu: not found, the stage runs on the CPU setting=resources.train.gpu"
    assert (warning in capfd.readouterr().out) is warned
