"""EASE: weights between pairs of items that predict a user's likes from the user's other likes, solved in closed form (Steck, 2019).

The objective over the weights B with a zero diagonal, where X has a row of ones and zeros for each user:

    |X - X B|^2 + regularisation * |B|^2

With P, the inverse of X'X + regularisation, the solution is B = -P / diag(P) by column. X P also equals Q X with Q, the inverse of
XX' + regularisation, which has a row for each user. So where users are fewer than items, the residuals come from the users' side:

    R = X - X B = Q X / diag(P) with regularisation * diag(P) = 1 - diag(X'Q X), and B = X'R / regularisation without the diagonal

Time grows with the cube of the smaller side, and with the likes times the size of either side; memory with the square of the items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipelines.training.likes import Ints, LikePairs
from pipelines.training.sparse import blocks, sparse, together

Floats = NDArray[np.float32]
EXACT = 5_000
"""Up to this size of the smaller side the solver uses float64, which takes twice the memory and time."""
SMALL = 2_000
"""Most unknowns of a system of equations that one thread solves alone; this takes 0.2 s."""


@dataclass(frozen=True)
class EaseEquations:
    """The equations of these likes, for any regularisation."""

    likes: LikePairs

    @cached_property
    def by_users(self) -> bool:
        """Whether the users are the smaller side."""
        return self.likes.user_count < self.likes.item_count

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        """Returns [users, items] and [items, users]: who likes what."""
        return sparse(self.likes.by_user(), self.likes.item_count), sparse(self.likes.by_item(), self.likes.user_count)

    @cached_property
    def _counts(self) -> Floats:
        """Returns how many likes each two rows of the smaller side share."""
        by_user, by_item = self._sides
        return together(by_user, by_item) if self.by_users else together(by_item, by_user)

    def weights(self, regularisation: float) -> Floats:
        if not self.by_users:
            return solve(self._counts.astype(precision(len(self._counts))), regularisation)
        residuals, by_item = self._residuals(regularisation), self._sides[1]
        residuals /= np.float32(regularisation)
        weights = np.empty((self.likes.item_count, self.likes.item_count), np.float32)
        for rows in blocks(*weights.shape):
            weights[rows] = by_item[rows] @ residuals
        weights[np.diag_indices(len(weights))] = 0
        return weights

    def scores(self, regularisation: float) -> Callable[[Ints], Floats]:
        """Returns the function that scores all items for users of these likes."""
        by_user = self._sides[0]
        if self.by_users:
            residuals = self._residuals(regularisation)
            return lambda users: by_user[users].toarray() - residuals[users]
        weights = self.weights(regularisation)
        return lambda users: by_user[users] @ weights

    def _residuals(self, regularisation: float) -> Floats:
        """Returns [users, items]: the likes minus the scores."""
        by_item = self._sides[1]
        inverse = _inverse(self._counts.astype(precision(len(self._counts))), regularisation)
        residuals = np.empty((self.likes.user_count, self.likes.item_count), np.float32)
        for items in blocks(self.likes.item_count, self.likes.user_count):
            product = by_item[items] @ inverse
            explained = by_item[items].multiply(product).sum(axis=1)
            # Rounding must not go below the bound that the diagonal of an inverse has.
            left = np.maximum(1 - explained, regularisation / (regularisation + by_item[items].sum(axis=1)))
            residuals[:, items] = (product * (regularisation / left)[:, None]).T
        return residuals


def precision(size: int) -> np.dtype[Any]:
    return np.dtype(np.float64 if size <= EXACT else np.float32)


def memory_needed(users: int, items: int) -> int:
    """Returns the bytes of the largest arrays that the solver has at once."""
    if users >= items:
        return 2 * items**2 * precision(items).itemsize
    return 4 * items**2 + 4 * users * items + 2 * users**2 * precision(users).itemsize


def solve(counts: NDArray[Any], regularisation: float) -> Floats:
    """Returns the weights; `counts` says how many users like both of two items, in the computation's precision, and is overwritten."""
    inverse = _inverse(counts, regularisation)
    diagonal = np.diag_indices(len(counts))
    inverse *= -1 / inverse[diagonal]
    inverse[diagonal] = 0
    return inverse.astype(np.float32, copy=False)


def _inverse(counts: NDArray[Any], regularisation: float) -> NDArray[Any]:
    """Returns the inverse of `counts` with the regularisation on its diagonal; overwrites `counts`."""
    from scipy.linalg import lapack

    size = len(counts)
    counts[np.diag_indices(size)] += regularisation
    factorise, invert = (lapack.dpotrf, lapack.dpotri) if counts.dtype == np.float64 else (lapack.spotrf, lapack.spotri)
    # Threads of BLAS wait for each other longer than a small system takes, most of all on a busy machine.
    with threadpool_limits(1 if size <= SMALL else None, "blas"):
        # LAPACK is column-major: its lower half of the transpose is the upper half here.
        factor, failed = factorise(counts.T, lower=True, clean=False, overwrite_a=True)
        if failed:
            raise FloatingPointError(
                f"a regularisation of {regularisation:g} is too small for numbers of {counts.dtype.itemsize} bytes: choose a larger one"
            )
        inverse: NDArray[Any] = invert(factor, lower=True, overwrite_c=True)[0].T
    for rows in blocks(size, size):
        inside = inverse[rows, rows]
        inverse[rows, rows] = np.triu(inside) + np.triu(inside, 1).T
        inverse[rows, : rows.start] = inverse[: rows.start, rows].T
    return inverse
