"""The same steps on TensorFlow, on torch and on JAX, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models import runtime
from pipelines.models.neural import frameworks
from tests.support import jax_available, neural_model
from tests.support.framework_process import made_apart
from tests.support.torch_available import torch

Found = Callable[[str], Mapping[str, Any]]
"""Of a framework, of every variant."""
THERE = {"tensorflow": lambda: None, "torch": torch, "jax": jax_available.there}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("steps")
    taken = cache(lambda name: _steps(name, folder / f"{name}.npz"))

    def of(name: str) -> Mapping[str, Any]:
        THERE[name]()
        return taken(name)

    return of


def _steps(name: str, out: Path) -> Mapping[str, Any]:
    return made_apart("tests.support.neural_model", name, str(out), out=out)


@pytest.mark.requirement("L-04", "T-08")
@pytest.mark.parametrize("other", ["torch", "jax"])
def test_the_first_steps_are_those_on_tensorflow(found: Found, other: str, subtests: pytest.Subtests) -> None:
    theirs, ours = found(other), found("tensorflow")
    plain = (
        "adam",
        "sparse",
        "adagrad",
        "sgd",
        "everything",
        "dlrm",
        "wide_deep",
        "deepfm",
        "dcn",
        "decay",
        "decay_sgd",
        "scheduled",
        "towers",
    )
    for variant in plain:
        with subtests.test(variant=variant):
            np.testing.assert_allclose(theirs[f"{variant}/losses"], ours[f"{variant}/losses"], rtol=2e-4)
            for name in ours:
                if name.startswith(f"{variant}/weights/"):
                    np.testing.assert_allclose(theirs[name], ours[name], atol=2e-3)


@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_on_each_the_arrays_score_as_the_framework_does_and_what_is_kept_goes_on(
    found: Found, framework: str, subtests: pytest.Subtests
) -> None:
    one = found(framework)
    for variant in neural_model.VARIANTS:
        with subtests.test(variant=variant):
            np.testing.assert_allclose(one[f"{variant}/own"], one[f"{variant}/plain"], atol=1e-6)
            np.testing.assert_array_equal(*one[f"{variant}/repeated"])


@pytest.mark.requirement("L-04", "T-08")
@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_dense_updates_of_tables_are_those_of_the_rows_that_a_batch_reads(found: Found, framework: str) -> None:
    arrays = found(framework)
    for name in (name for name in arrays if name.startswith("adam/weights/table_")):
        np.testing.assert_allclose(arrays[name.replace("adam", "sparse", 1)], arrays[name], atol=2e-5, err_msg=name)


@pytest.mark.requirement("G-26", "N-06")
@pytest.mark.parametrize("variant", ["float16", "float16_sparse"])
@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_by_float16_a_gradient_that_overflows_moves_nothing_and_halves_the_scale(found: Found, framework: str, variant: str) -> None:
    one = found(framework)
    np.testing.assert_allclose(one[f"{variant}/losses"], one["adam/losses"], rtol=0.005)
    (moved, scale, skipped), (then, bears, still) = one[f"{variant}/planted"]
    assert (moved, scale, skipped) == (0, 2.0**99, 1)
    assert then > 5 and (bears, still) == (2.0**10, 0)


@pytest.mark.requirement("L-02")
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_half_precision_and_a_compiler(found: Found, framework: str, subtests: pytest.Subtests) -> None:
    one = found(framework)
    for variant, plain in (("half", "adam"), ("jit", "adam"), ("towers_jit", "towers")):
        with subtests.test(variant=variant):
            np.testing.assert_allclose(one[f"{variant}/losses"], one[f"{plain}/losses"], rtol=0.03)


def test_jax_builds_few_programs_whatever_its_batches_read_and_writes_where_the_old_rows_lay(found: Found) -> None:
    """Of twelve batches of 2,048 rows no two read equally many rows; the last one of an epoch has 1,024."""
    programs, kept = found("jax")["programs"], found("jax")["same_memory"]
    assert len(set(programs[:, 0])) > 8
    assert programs[-1, 1] <= 3
    assert kept.all()


@pytest.mark.parametrize(("gpus", "share"), [("16384\n", "0.5000"), ("16384\n10240\n", "0.8000"), ("", None)])
def test_jax_takes_as_much_of_a_gpu_as_it_may(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: str, share: str | None) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{gpus}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("EYAS_GPU_MEMORY", "8Gi")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")
    runtime.cap_jax()
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == (share or "0.1")
