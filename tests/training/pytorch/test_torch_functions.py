"""torch's own functions in a step equal Keras', and torch computes as its runtime was set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.models.neural.arrays import load_arrays
from pipelines.models.runtime import load_torch
from tests.support.torch_available import torch as installed

torch = installed()
ROOT = Path(__file__).parents[3]

CALLS = [
    ("cast", ("bfloat16",), {}),
    ("relu", (), {}),
    ("softplus", (), {}),
    ("reshape", ((-1, 5),), {}),
    ("expand_dims", (1,), {}),
    ("transpose", (), {}),
    ("transpose", ((1, 0),), {}),
    ("matmul", (torch.ones(6, 3),), {}),
    ("take", (np.array([4, 0], np.int32),), {"axis": 1}),
    ("sum", (), {}),
    ("sum", (), {"axis": 1, "keepdims": True}),
    ("mean", (), {}),
    ("mean", (), {"axis": 0}),
    ("sqrt", (), {}),
]


@pytest.mark.requirement("T-02")
@pytest.mark.parametrize(("name", "arguments", "options"), CALLS)
def test_functions_equal_those_of_keras(name: str, arguments: tuple[object, ...], options: dict[str, object]) -> None:
    load_torch()
    from keras import ops

    rows = torch.from_numpy(np.random.default_rng(1).normal(0, 1, (5, 6)).astype(np.float32)) ** 2
    result, expected = (getattr(functions, name)(rows, *arguments, **options) for functions in (load_arrays(), ops))
    torch.testing.assert_close(result, expected)


@pytest.mark.requirement("T-02")
@pytest.mark.parametrize("axis", [0, 1])
def test_functions_of_several_arrays_equal_those_of_keras(axis: int) -> None:
    load_torch()
    from keras import ops

    rows = [torch.arange(6.0).reshape(2, 3) + number for number in range(3)]
    for name in ("concatenate", "stack"):
        torch.testing.assert_close(getattr(load_arrays(), name)(rows, axis=axis), getattr(ops, name)(rows, axis=axis))
    parts = load_arrays().unstack(rows[0], rows[0].shape[axis], axis=axis)
    for part, expected in zip(parts, ops.unstack(rows[0], rows[0].shape[axis], axis=axis), strict=True):
        torch.testing.assert_close(part, expected)


@pytest.mark.requirement("T-02")
def test_numbers_below_the_normal_range_become_zero() -> None:
    """Also in the threads of a large product, if none has started before: so in a process of its own, as a stage is."""
    lines = [
        "from pipelines.models.runtime import load_torch",
        "torch = load_torch()",
        "product = torch.full((512, 512), 1e-30) @ torch.full((512, 512), 1e-12)",
        "print(int((product != 0).sum()))",
    ]
    process = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert process.stdout == "0\n", process.stderr
