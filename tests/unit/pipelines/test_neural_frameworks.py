"""The same steps on TensorFlow and on torch, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.models.neural import frameworks
from shared.domain.errors import Invalid
from tests import neural
from tests.pytorch import torch

Found = Mapping[str, Mapping[str, Any]]
"""By framework, of every variant."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    torch()
    folder = tmp_path_factory.mktemp("steps")
    return {name: _steps(name, folder / f"{name}.npz") for name in frameworks.NAMES}


def _steps(name: str, out: Path) -> Mapping[str, Any]:
    command = [sys.executable, "-m", "tests.neural", name, str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert ran.returncode == 0, ran.stderr
    with np.load(out, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.requirement("L-04", "T-08")
@pytest.mark.parametrize("variant", ["adam", "adagrad", "sgd", "everything", "dlrm", "wide_deep", "towers"])
def test_the_first_steps_on_torch_are_those_on_tensorflow(found: Found, variant: str) -> None:
    ours, theirs = found["tensorflow"], found["torch"]
    np.testing.assert_allclose(theirs[f"{variant}/losses"], ours[f"{variant}/losses"], rtol=2e-4)
    for name in ours:
        if name.startswith(f"{variant}/weights/"):
            np.testing.assert_allclose(theirs[name], ours[name], atol=2e-3)


@pytest.mark.parametrize("variant", neural.VARIANTS)
@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_on_either_the_arrays_score_as_the_framework_does_and_what_is_kept_goes_on(found: Found, framework: str, variant: str) -> None:
    one = found[framework]
    np.testing.assert_allclose(one[f"{variant}/own"], one[f"{variant}/plain"], atol=1e-6)
    np.testing.assert_array_equal(*one[f"{variant}/repeated"])


@pytest.mark.requirement("L-02")
@pytest.mark.parametrize(("variant", "plain"), [("half", "adam"), ("jit", "adam"), ("towers_jit", "towers")])
def test_half_precision_and_a_compiler_on_torch(found: Found, variant: str, plain: str) -> None:
    np.testing.assert_allclose(found["torch"][f"{variant}/losses"], found["torch"][f"{plain}/losses"], rtol=0.03)


def test_torch_that_is_not_there_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks.importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(Invalid, match="torch isn't installed where this stage runs: make setup-torch, or say tensorflow"):
        frameworks.load_framework("torch")
