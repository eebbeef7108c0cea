"""Implicit alternating least squares: solves one side's vectors exactly with the other side's fixed, in turns.

The objective, over users u and items i, sums over the liked pairs and over all possible pairs:

    sum of w (1 - u.i)^2 over liked  +  unobserved * sum of (u.i)^2 over all  +  regularisation * sum of n |vector|^2

w is a like's weight, 1 by default; n is how much a vector must explain (the weights of its likes, and its part of all pairs), so that one
value of `regularisation` fits the head and the tail. There is no step size and no sampling: equal input gives equal vectors. Rows are
solved in batches of similar length, padded to the longest, so memory stays within a few times `CELLS` for any data; each thread solves a
batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipelines.training.likes import Ints, LikePairs, LikesByRow

Floats = NDArray[np.float32]
CELLS = 1 << 22
"""Numbers of a padded batch: 16 MiB of float32."""


@dataclass(frozen=True)
class AlsTerms:
    unobserved: float
    regularisation: float


@dataclass(frozen=True)
class Factors:
    users: Floats
    items: Floats

    def scores(self, users: Ints, items: Ints) -> Floats:
        scores: Floats = np.einsum("nd,nd->n", self.users[users], self.items[items])
        return scores


def begin(user_count: int, item_count: int, width: int, seed: int) -> Factors:
    random = np.random.default_rng((seed, 41))
    scale = 0.1 / np.sqrt(width)
    sides = [(random.standard_normal((count, width), dtype=np.float32) * np.float32(scale)) for count in (user_count, item_count)]
    return Factors(*sides)


def sweeps(pairs: LikePairs, factors: Factors, terms: AlsTerms, count: int) -> Iterator[float]:
    """Solves all users, then all items, in place; yields the loss per weight, without regularisation. Rows without likes become zero."""
    by_user, by_item = pairs.by_user(), pairs.by_item()
    for _ in range(count):
        _solve(by_user, factors.users, factors.items, terms)
        yield _solve(by_item, factors.items, factors.users, terms) / max(1.0, float(by_item.totals.sum()))


def _solve(likes: LikesByRow, factors: Floats, theirs: Floats, terms: AlsTerms) -> float:
    """Solves one side and returns the objective without the regularisation."""
    lengths = likes.lengths
    factors[lengths == 0] = 0
    met = np.count_nonzero(np.abs(theirs).max(axis=1, initial=0))
    weights = (terms.regularisation * (likes.totals + terms.unobserved * met)).astype(np.float32)
    shared = np.float32(terms.unobserved) * (theirs.T @ theirs)
    padded = np.concatenate([theirs, np.zeros((1, theirs.shape[1]), np.float32)])
    batch = partial(_solve_batch, likes, factors, padded, shared, weights)
    # BLAS threads cost more than they gain on matrices this small.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        return float(sum(pool.map(batch, _batches(lengths, theirs.shape[1]))))


def _solve_batch(likes: LikesByRow, factors: Floats, padded: Floats, shared: Floats, weights: Floats, rows: Ints) -> float:
    """Solves these rows and returns their unexplained part: with left @ vector = right, total - vector.right - weight * |vector|^2."""
    width, longest = factors.shape[1], int(likes.lengths[rows[0]])
    left = shared + weights[rows][:, None, None] * np.eye(width, dtype=np.float32)
    right = np.zeros((len(rows), width), np.float32)
    step = max(1, CELLS // (len(rows) * width))
    for at in range(0, longest, step):
        places, blank = _window(likes, rows, at, min(at + step, longest)), len(padded) - 1
        window = padded[np.where(places >= 0, likes.others[places], blank)]
        weighted = window if likes.weights is None else window * likes.weights[places][:, :, None]
        left += np.matmul(window.transpose(0, 2, 1), weighted)
        right += weighted.sum(axis=1)
    vectors = factors[rows] = _solved(left, right)
    explained = np.einsum("nd,nd->n", vectors, right + weights[rows][:, None] * vectors)
    return float((likes.totals[rows] - explained).sum(dtype=np.float64))


def _solved(left: Floats, right: Floats) -> Floats:
    """Solves by Cholesky, up to ten times as fast as numpy.linalg.solve; overwrites `left`."""
    from scipy.linalg import lapack

    solution = np.empty_like(right)
    for at in range(len(right)):
        _, solution[at], failed = lapack.sposv(left[at].T, right[at], overwrite_a=True)
        if failed:
            raise FloatingPointError("the equations cannot be solved in single precision: choose a stronger regularisation")
    return solution


def _window(likes: LikesByRow, rows: Ints, start: int, stop: int) -> Ints:
    """Returns the places of these rows' likes from `start` to `stop`, and -1 behind a row's end."""
    columns = np.arange(start, stop)
    there = columns < likes.lengths[rows][:, None]
    return np.where(there, likes.start[rows][:, None] + columns, -1)


def _batches(lengths: Ints, width: int) -> Iterator[Ints]:
    """Yields rows with likes, the longest first, in batches whose likes and equations each fit into `CELLS`."""
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    at = 0
    while at < len(order):
        count = max(1, CELLS // (width * max(int(lengths[order[at]]), width)))
        yield order[at : at + count]
        at += count
