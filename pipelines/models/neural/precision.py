"""Checks that a framework's outputs equal those of the NumPy arrays, up to rounding.

The tolerance follows from the model: a multiple of the change in the arrays' outputs if the inputs of all matrix products are rounded to
fewer bits. A GPU may round them to TF32; the frameworks switch TF32 off for the comparison. But TensorFlow may reuse a cuBLASLt plan from
before, so on a GPU a difference that TF32 explains is accepted and logged as a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
MANTISSA = 23
"""Mantissa bits of a float32."""
FULL, TF32 = MANTISSA - 1, 10
"""Mantissa bits for rounded inputs of matrix products: for the tolerance in full precision, and for the tolerance of TF32."""
FULL_FACTOR, TF32_FACTOR = 64.0, 3.0
"""Multiples of the change by rounding; in full precision larger, because sums in another order add to the difference."""


@dataclass(frozen=True)
class PrecisionCheck:
    largest: float
    """Largest difference between the framework's outputs and the arrays'."""
    tolerance: float
    """Tolerance in full precision."""
    tf32: bool = False
    """Whether TF32 explains a larger difference."""

    def check(self, name: str, log: logging.Logger) -> None:
        """Raises RuntimeError if the outputs differ, because the arrays are what is judged and served."""
        if self.largest <= self.tolerance < np.inf:
            log.info("outputs: verified framework=%s difference=%.2g tolerance=%.2g", name, self.largest, self.tolerance)
        elif self.tf32:
            log.warning("outputs: differ by disabled TF32 framework=%s difference=%.2g tolerance=%.2g", name, self.largest, self.tolerance)
        else:
            raise RuntimeError(
                f"outputs of {name} and of its arrays differ by {self.largest:.2g}, more than {self.tolerance:.2g}: nothing is published"
            )


EQUAL = PrecisionCheck(0.0, 0.0)


def compare(framework: Floats, arrays: Callable[[int | None], Floats], gpu: bool) -> PrecisionCheck:
    """Compares a framework's outputs with the arrays' outputs. `arrays` computes the latter, with the inputs of matrix products rounded to
    the given number of mantissa bits, or not rounded for None."""
    exact = arrays(None)
    difference = framework - exact
    least = 8 * float(np.finfo(np.float32).eps) * _largest(exact)
    tolerance = FULL_FACTOR * _largest(arrays(FULL) - exact) + least
    if _largest(difference) <= tolerance or not gpu:
        return PrecisionCheck(_largest(difference), tolerance)
    change = arrays(TF32) - exact
    tf32 = all(size(difference) <= TF32_FACTOR * size(change) + least for size in (_largest, _root_mean_square))
    return PrecisionCheck(_largest(difference), tolerance, tf32)


def round_mantissa(values: Floats, bits: int | None) -> Floats:
    """Rounds to this number of mantissa bits, half to even; None leaves the values unchanged."""
    if bits is None:
        return values
    dropped = np.uint32(MANTISSA - bits)
    raw_bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32((1 << (int(dropped) - 1)) - 1)
    rounded = ((raw_bits + half + (raw_bits >> dropped & np.uint32(1))) >> dropped << dropped).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _largest(values: NDArray[Any]) -> float:
    return float(np.abs(values).max(initial=0))


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
