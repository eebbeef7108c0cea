"""TensorFlow's share of a GPU's memory, capped before it starts; GPUs are played here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.models import runtime
from pipelines.models.runtime import GPU_MEMORY, cap_gpu_memory, load_tensorflow
from shared.domain.errors import Conflict

ROOT = Path(__file__).parents[3]


@pytest.fixture
def capped(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Two GPUs, of which the second is in use already where that is asked of it."""
    tf, found = load_tensorflow(), dict[str, float]()
    gpus = [SimpleNamespace(name="GPU:0"), SimpleNamespace(name="GPU:1")]

    def configure(gpu: Any, logical: Any) -> None:
        found[gpu.name] = logical[0].memory_limit

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus if kind == "GPU" else [])
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", configure)
    return found


@pytest.mark.requirement("T-11")
def test_every_gpu_is_capped(capped: dict[str, float]) -> None:
    cap_gpu_memory(8 * 2**30)
    assert capped == {"GPU:0": 8192, "GPU:1": 8192}


def test_a_cap_that_comes_too_late_is_said(capped: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> None:
        raise RuntimeError("Virtual devices cannot be modified after being initialized")

    monkeypatch.setattr(load_tensorflow().config, "set_logical_device_configuration", late)
    with pytest.raises(Conflict, match="TensorFlow already uses GPU:0: limit its memory before"):
        cap_gpu_memory(2**30)


@pytest.mark.requirement("T-11")
def test_tensorflow_is_capped_as_it_is_loaded(capped: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    tf = load_tensorflow()
    monkeypatch.setenv(GPU_MEMORY, "512Mi")
    load_tensorflow()
    assert capped == {}  # it is there already: whoever loaded it has said what it may take
    monkeypatch.setattr(runtime, "_loaded", lambda: False)
    assert load_tensorflow() is tf
    assert capped == {"GPU:0": 512, "GPU:1": 512}


@pytest.mark.parametrize(("said", "out"), [("8Gi", "loaded"), ("half", "EYAS_GPU_MEMORY: expected an amount of memory such as 512Mi")])
def test_on_a_machine_without_a_gpu_a_cap_has_no_effect_but_a_wrong_one_is_refused(said: str, out: str) -> None:
    script = "from pipelines.models.runtime import load_keras; load_keras(); print('loaded')"
    environment = os.environ | {GPU_MEMORY: said, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert out in done.stdout + done.stderr
    assert (done.returncode == 0) is (out == "loaded")
