"""EASE: weights between pairs of items that predict a user's likes from the user's other likes, solved in closed form (Steck, 2019).

The objective over the weights B with a zero diagonal, where X has a row of ones and zeros for each user:

    |X - X B|^2 + regularisation * |B|^2

With P, the inverse of X'X + regularisation, the solution is B = -P / diag(P) by column. Time grows with the cube of the number of items,
memory with the square; the number of users hardly matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.training.sparse import blocks

Floats = NDArray[np.float32]


def solve(counts: NDArray[Any], regularisation: float) -> Floats:
    """Returns the weights; `counts` says how many users like both of two items, in the computation's precision, and is overwritten."""
    from scipy.linalg import lapack

    size = len(counts)
    diagonal = np.diag_indices(size)
    counts[diagonal] += regularisation
    factorise, invert = (lapack.dpotrf, lapack.dpotri) if counts.dtype == np.float64 else (lapack.spotrf, lapack.spotri)
    # LAPACK is column-major: its lower half of the transpose is the upper half here.
    factor, failed = factorise(counts.T, lower=True, clean=False, overwrite_a=True)
    if failed:
        raise FloatingPointError(
            f"a regularisation of {regularisation:g} is too small for numbers of {counts.dtype.itemsize} bytes: choose a larger one"
        )
    inverse: NDArray[Any] = invert(factor, lower=True, overwrite_c=True)[0].T
    scale = -1 / inverse[diagonal]
    for rows in blocks(size, size):
        inside = inverse[rows, rows]
        inverse[rows, rows] = np.triu(inside) + np.triu(inside, 1).T
        inverse[rows, : rows.start] = inverse[: rows.start, rows].T
    inverse *= scale
    inverse[diagonal] = 0
    return inverse.astype(np.float32, copy=False)
