"""EASE: a weight for each pair of items, such that what a user likes is foretold by what else the user likes, solved at once (Steck, 2019).

What is minimised over the weights B, with nothing on its diagonal, where X has a row of ones and zeros for each user:

    |X - X B|^2 + regularisation * |B|^2

Its solution is one inverse, P, of X'X + regularisation: B = -P / diag(P) by column. Time grows with the cube of the number of items, memory
with the square; how many users there are hardly counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.training.sparse import blocks

Floats = NDArray[np.float32]


def solve(counts: NDArray[Any], regularisation: float) -> Floats:
    """`counts`: how many users like both of two items, in the precision to compute in; it is overwritten, and may be what is given back."""
    from scipy.linalg import lapack

    size = len(counts)
    diagonal = np.diag_indices(size)
    counts[diagonal] += regularisation
    factorise, invert = (lapack.dpotrf, lapack.dpotri) if counts.dtype == np.float64 else (lapack.spotrf, lapack.spotri)
    # LAPACK counts by columns: the lower half of the transpose, which it works on, is the upper one here.
    factor, failed = factorise(counts.T, lower=True, clean=False, overwrite_a=True)
    if failed:
        raise FloatingPointError(f"a regularisation of {regularisation:g} is too small for numbers of {counts.dtype.itemsize} bytes")
    inverse: NDArray[Any] = invert(factor, lower=True, overwrite_c=True)[0].T
    scale = -1 / inverse[diagonal]
    for rows in blocks(size, size):
        inside = inverse[rows, rows]
        inverse[rows, rows] = np.triu(inside) + np.triu(inside, 1).T
        inverse[rows, : rows.start] = inverse[: rows.start, rows].T
    inverse *= scale
    inverse[diagonal] = 0
    return inverse.astype(np.float32, copy=False)
