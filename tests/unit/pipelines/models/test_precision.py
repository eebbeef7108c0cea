"""The comparison of a framework's outputs with those of the arrays, and the rounding that its tolerance follows from."""

from __future__ import annotations

import logging
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pipelines.models.neural.plain import NumpyOperations
from pipelines.models.neural.precision import PrecisionCheck, compare, round_mantissa

LOG = logging.getLogger("test")
random = np.random.default_rng(4)
ROWS, KERNEL = (random.normal(size=shape).astype(np.float32) for shape in ((500, 64), (64, 8)))


def arrays(bits: int | None) -> Any:
    return NumpyOperations({}, bits).dense(ROWS, KERNEL, np.zeros(8, np.float32))


@pytest.mark.parametrize("bits", [7, 10, 16, 22])
def test_a_value_is_rounded_to_the_nearest_of_so_many_bits_and_of_two_to_the_even_one(bits: int) -> None:
    step = Fraction(1, 2**bits)
    values = np.array([1, 1 + 2.0**-23, 1.75 + 2.0**-11, *random.uniform(1, 2, 200)], np.float32)
    for value, rounded in zip(values, round_mantissa(values, bits), strict=True):
        assert Fraction(float(rounded)) == round(Fraction(float(value)) / step) * step  # Python rounds a half to the even one
    ties = np.array([1 + 0.5 * 2.0**-bits, 1 + 1.5 * 2.0**-bits], np.float32)
    np.testing.assert_array_equal(round_mantissa(ties, bits), [1, 1 + 2 * 2.0**-bits])
    np.testing.assert_array_equal(round_mantissa(-ties, bits), -round_mantissa(ties, bits))


def test_zeros_powers_of_two_infinity_and_no_numbers_stay_and_without_bits_everything_does() -> None:
    values = np.array([0, -0.0, 2.0**-100, -(2.0**100), np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(round_mantissa(values, 10), values)
    assert round_mantissa(ROWS, None) is ROWS
    transposed = round_mantissa(ROWS.T, 10)
    np.testing.assert_array_equal(transposed, round_mantissa(ROWS, 10).T)


def in_another_order() -> Any:
    """The same products, summed up by float32 from the last to the first."""
    found = np.zeros((500, 8), np.float32)
    for at in reversed(range(64)):
        found += ROWS[:, at, None] * KERNEL[None, at]
    return found


@pytest.mark.parametrize("gpu", [False, True])
def test_sums_in_another_order_are_equal_and_one_percent_is_not(gpu: bool) -> None:
    equal = compare(in_another_order(), arrays, gpu)
    assert 0 < equal.largest < equal.tolerance < 0.001 and not equal.tf32
    equal.check("PyTorch", LOG)
    wrong = compare(arrays(None) * np.float32(1.01), arrays, gpu)
    with pytest.raises(
        RuntimeError, match=r"outputs of PyTorch and of its arrays differ by 0\.\d+, more than 0?[\d.e-]+: nothing is published"
    ):
        wrong.check("PyTorch", LOG)


def test_only_on_a_gpu_tf32_explains_a_difference_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rounded = arrays(10)
    on_gpu = compare(rounded, arrays, gpu=True)
    assert on_gpu.tf32 and on_gpu.largest > on_gpu.tolerance
    on_gpu.check("TensorFlow", LOG)
    assert "outputs: differ by disabled TF32 framework=TensorFlow difference=" in caplog.text
    with pytest.raises(RuntimeError, match="nothing is published"):
        compare(rounded, arrays, gpu=False).check("TensorFlow", LOG)


def test_one_row_that_is_wrong_is_not_explained_by_tf32() -> None:
    rounded = arrays(10)
    rounded[7] *= np.float32(1.01)
    assert compare(rounded, arrays, gpu=True).tf32 is False


@pytest.mark.parametrize("compared", [PrecisionCheck(np.nan, 1e-5), PrecisionCheck(1.0, np.nan), PrecisionCheck(np.inf, np.inf)])
def test_what_is_no_finite_number_is_not_published(compared: PrecisionCheck) -> None:
    with pytest.raises(RuntimeError, match="nothing is published"):
        compared.check("JAX", LOG)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_tolerance_is_relative_to_the_outputs(scale: float) -> None:
    exact = compare(in_another_order() * np.float32(scale), lambda bits: arrays(bits) * np.float32(scale), gpu=False)
    assert exact.largest < exact.tolerance < 1e-3 * scale
