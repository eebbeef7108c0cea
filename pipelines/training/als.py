"""Implicit alternating least squares: solves one side's vectors exactly with the other side's fixed, in turns.

The objective, over users u and items i, sums over the liked pairs and over all possible pairs:

    sum of w (1 - u.i)^2 over liked  +  unobserved * sum of (u.i)^2 over all  +  regularisation * sum of n |vector|^2

w is a like's weight, 1 by default; n is how much a vector must explain (the weights of its likes, and its part of all pairs), so that one
value of `regularisation` fits the head and the tail. There is no step size and no sampling: equal input gives equal vectors. Rows are
solved in batches of similar length, padded to the longest, so memory stays within a few times `CELLS` for any data; each thread solves a
batch. Without their likes all rows have equations with the same axes, so a row with fewer likes than a vector has numbers takes a system of
the size of its likes (Woodbury's identity).
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
CELLS = 1 << 20
"""Numbers of a padded batch: 4 MiB of float32."""


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


@dataclass(frozen=True)
class _Basis:
    """Axes in which the equations that all rows share are diagonal."""

    scale: Floats
    """The diagonal."""
    axes: Floats
    """One axis in each column."""
    vectors: Floats
    """The other side's vectors along the axes, and a zero vector at the end."""


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
    # BLAS threads cost more than they gain on matrices this small.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        batch = partial(_solve_batch, likes, factors, _basis(theirs, terms.unobserved), weights)
        return float(sum(pool.map(batch, _batches(lengths, theirs.shape[1]))))


def _basis(theirs: Floats, unobserved: float) -> _Basis:
    scale, axes = np.linalg.eigh(np.float32(unobserved) * (theirs.T @ theirs).astype(np.float64))
    axes = axes.astype(np.float32)
    padded = np.concatenate([theirs @ axes, np.zeros((1, theirs.shape[1]), np.float32)])
    return _Basis(scale.clip(0).astype(np.float32), axes, padded)


def _solve_batch(likes: LikesByRow, factors: Floats, basis: _Basis, weights: Floats, rows: Ints) -> float:
    """Solves these rows and returns their unexplained part: with left @ vector = right, total - vector.right - weight * |vector|^2."""
    diagonal = basis.scale + weights[rows][:, None]
    solve = _solved_by_likes if likes.lengths[rows[0]] < factors.shape[1] else _solved_by_width
    vectors, right = solve(likes, basis.vectors, diagonal, rows)
    factors[rows] = vectors @ basis.axes.T
    explained = np.einsum("nd,nd->n", vectors, right + weights[rows][:, None] * vectors)
    return float((likes.totals[rows] - explained).sum(dtype=np.float64))


def _solved_by_width(likes: LikesByRow, padded: Floats, diagonal: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Returns the solutions and the right sides of equations as large as a vector is wide."""
    width, longest = padded.shape[1], int(likes.lengths[rows[0]])
    left, right = np.zeros((len(rows), width, width), np.float32), np.zeros((len(rows), width), np.float32)
    left[:, np.arange(width), np.arange(width)] = diagonal
    step = max(1, CELLS // (len(rows) * width))
    for at in range(0, longest, step):
        places, window = _window(likes, padded, rows, at, min(at + step, longest))
        weighted = window if likes.weights is None else window * likes.weights[places][:, :, None]
        left += np.matmul(window.transpose(0, 2, 1), weighted)
        right += weighted.sum(axis=1)
    return _solved(left, right), right


def _solved_by_likes(likes: LikesByRow, padded: Floats, diagonal: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Same from equations as large as a row has likes: (D + V'V)^-1 V'c = D^-1 V'(1 + V D^-1 V')^-1 c, where c has the roots of the weights
    and V the liked vectors times c."""
    longest = int(likes.lengths[rows[0]])
    places, window = _window(likes, padded, rows, 0, longest)
    roots = np.ones((len(rows), longest), np.float32) if likes.weights is None else np.sqrt(likes.weights[places])
    window *= roots[:, :, None]
    scaled = window / diagonal[:, None, :]
    left = np.matmul(scaled, window.transpose(0, 2, 1))
    left[:, np.arange(longest), np.arange(longest)] += 1
    vectors = np.matmul(_solved(left, roots)[:, None], scaled)[:, 0]
    return vectors, np.matmul(roots[:, None], window)[:, 0]


def _solved(left: Floats, right: Floats) -> Floats:
    """Solves by Cholesky, up to ten times as fast as numpy.linalg.solve; overwrites `left`."""
    from scipy.linalg import lapack

    solution = np.empty_like(right)
    for at in range(len(right)):
        _, solution[at], failed = lapack.sposv(left[at].T, right[at], overwrite_a=True)
        if failed:
            raise FloatingPointError("the equations cannot be solved in single precision: choose a stronger regularisation")
    return solution


def _window(likes: LikesByRow, padded: Floats, rows: Ints, start: int, stop: int) -> tuple[Ints, Floats]:
    """Returns the places of these rows' likes from `start` to `stop`, and the liked vectors, which are zero behind a row's end."""
    columns = np.arange(start, stop)
    places = likes.start[rows][:, None] + columns
    there = columns < likes.lengths[rows][:, None]
    places[~there] = 0
    return places, padded[np.where(there, likes.others[places], len(padded) - 1)]


def _batches(lengths: Ints, width: int) -> Iterator[Ints]:
    """Yields rows with likes, the longest first, in batches whose likes and equations each fit into `CELLS`. The shortest row of a batch
    has at least three quarters of the likes of its longest, and at least `width` if that has."""
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    falling = -lengths[order]
    at = 0
    while at < len(order):
        longest = int(-falling[at])
        shortest = max(-(-longest * 3 // 4), width if longest >= width else 0)
        end = min(int(np.searchsorted(falling, -shortest, "right")), at + max(1, CELLS // (width * longest)))
        yield order[at:end]
        at = end
