"""Training steps on windows of sequences: the same on TensorFlow and on PyTorch, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import sequence_data
from tests.support.framework_process import made_apart
from tests.support.torch_available import torch

FRAMEWORKS = ("tensorflow", "torch")


Found = Callable[[str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("steps")
    taken = cache(lambda name: _steps(name, folder / f"{name}.npz"))

    def of(name: str) -> Mapping[str, Any]:
        if name == "torch":
            torch()
        return taken(name)

    return of


def _steps(name: str, out: Path) -> Mapping[str, Any]:
    return made_apart("tests.support.sequence_data", name, str(out), out=out)


@pytest.mark.requirement("L-04", "G-20")
def test_the_first_steps_on_torch_are_those_on_tensorflow(found: Found, subtests: pytest.Subtests) -> None:
    theirs, ours = found("torch"), found("tensorflow")
    for variant in ("next", "masked", "drawn", "features", "features_drawn"):
        with subtests.test(variant=variant):
            np.testing.assert_allclose(theirs[f"{variant}/losses"], ours[f"{variant}/losses"], rtol=1e-4)
            assert np.abs(ours[f"{variant}/weights/items"] - ours[f"{variant}/begun"]).max() > 1e-3, "it learned"
            assert all(np.abs(ours[name][1:]).min() > 0 for name in ours if name == f"{variant}/weights/features"), "features are learned"
            for name in ours:
                if name.startswith(f"{variant}/weights/"):
                    np.testing.assert_allclose(theirs[name], ours[name], atol=5e-4)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_on_either_the_arrays_say_what_the_framework_does_and_what_is_kept_goes_on(
    found: Found, framework: str, subtests: pytest.Subtests
) -> None:
    one = found(framework)
    for variant in sequence_data.VARIANTS:
        with subtests.test(variant=variant):
            assert one[f"{variant}/apart"] < 1e-5
            np.testing.assert_array_equal(*one[f"{variant}/repeated"])
            learned = one.get(f"{variant}/weights/features", np.zeros((1, 1)))[0]
            assert learned.any() == ("hidden" in variant), "the vector of items without a code is learned from hidden items"
