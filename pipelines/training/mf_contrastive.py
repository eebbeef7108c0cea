"""Contrastive training of user and item vectors: compares each like with items that the user did not like.

A step takes some users with all of their likes, and all items; of a large catalogue, the liked items and a uniform sample, whose weights
make up for the rest. So a step is a few matrix products, and a user's likes are never negatives. For a like i of user u, with the score s
(the inner product plus the item's level), and n times the mean over the unliked items j:

    softmax:   -log of  e^s(u,i) / (e^s(u,i) + n mean e^s(u,j))
    logistic:  -log sigmoid(s(u,i)) - n mean log(1 - sigmoid(s(u,j)))

This is the expectation of n sampled negatives per like, without sampling noise. The regularisation of a vector follows the number of its
likes. With `damping`, the likes of users with many likes count less, as in metrics that count users. With `blend`, a user's vector is the
user's own plus the sum of the liked items' vectors, scaled by the root of their number; a random half of these is left out in each step, so
that no item learns to predict itself. Adam's rate rises first and falls to zero at the end. Equal input gives equal vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipelines.training.als import Factors, Floats
from pipelines.training.likes import Ints, LikePairs, LikesByRow

CELLS = 1 << 20
"""Scores of a step: 4 MiB of float32, which fits in CPU caches."""
USERS, STEPS = 256, 24
"""Most users of a step; an epoch has at least `STEPS` steps, or a step per user."""
SAMPLE = 8192
"""Items that a step compares with its likes; smaller catalogues are compared as a whole."""
WARM = 0.05
"""Share of all steps in which the rate rises."""
KEEP_SHARE = 0.5
"""Share of a user's likes that a step uses in the user's blended vector."""
FIRM = 10
"""Likes added to each user's count for the regularisation, so that few likes have little effect."""
_MOST = np.float32(30)
"""Largest logit of the logistic loss."""


@dataclass(frozen=True)
class ContrastiveTask:
    loss: Literal["softmax", "logistic"]
    negatives: float
    """Negatives per like."""
    regularisation: float
    blend: bool = False
    damping: float = 0.0
    """A like of a user with n likes has the weight n ^ -damping."""


class Adam:
    """Adam on the rows of a table: each row counts its own steps, so that rare rows also start with full bias correction."""

    def __init__(self, values: Floats) -> None:
        self.values = values
        self._mean, self._square = np.zeros_like(values), np.zeros_like(values)
        self._steps = np.zeros(len(values), np.int64)

    def step(self, rows: Ints | slice, gradient: NDArray[Any], rate: float, first: float = 0.9, second: float = 0.99) -> None:
        self._steps[rows] += 1
        steps = self._steps[rows]
        mean = np.float32(first) * self._mean[rows] + np.float32(1 - first) * gradient
        square = np.float32(second) * self._square[rows] + np.float32(1 - second) * np.square(gradient)
        self._mean[rows], self._square[rows] = mean, square
        square *= _column(1 / (1 - second**steps), square)
        np.sqrt(square, out=square)
        square += np.float32(1e-8)
        mean *= _column(rate / (1 - first**steps), mean)
        mean /= square
        self.values[rows] -= mean


def _column(values: NDArray[Any], like: NDArray[Any]) -> Floats:
    return values.astype(np.float32).reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True)
class LearnedFactors:
    """The learned arrays."""

    own: Floats
    items: Floats
    level: Floats
    """An item's level, the same for all users."""
    liked: Floats
    """What an item adds to the vectors of users who like it; no rows without blend."""

    def factors(self, by_user: LikesByRow) -> Factors:
        """Returns two tables whose inner product ranks as the score does.

        The items' last column is the level, centred and scaled to the size of the other columns, so that similar items still have similar
        directions; the users' last column reverses the scale.
        """
        users = self.own.copy()
        if len(self.liked):
            scale = _scale(by_user.lengths)
            for user in np.flatnonzero(by_user.lengths).tolist():
                users[user] += self.liked[by_user.of(user)].sum(axis=0) * scale[user]
        level = self.level - self.level.mean()
        size = max(float(level.std()) / max(float(self.items.std()), 1e-6), 1e-6)
        sizes = np.full((len(users), 1), size, np.float32)
        return Factors(np.concatenate([users, sizes], axis=1), np.concatenate([self.items, level[:, None] / np.float32(size)], axis=1))


def begin_parts(pairs: LikePairs, width: int, blend: bool, seed: int) -> LearnedFactors:
    random = np.random.default_rng((seed, 47))
    counts = np.bincount(pairs.items, minlength=pairs.item_count)
    level = np.log((counts + 1) / counts.mean()).astype(np.float32)

    def drawn(rows: int) -> Floats:
        matrix: Floats = random.standard_normal((rows, width), dtype=np.float32) * np.float32(0.1 / np.sqrt(width))
        return matrix

    return LearnedFactors(drawn(pairs.user_count), drawn(pairs.item_count), level, drawn(pairs.item_count if blend else 0))


class Contrast:
    """Trains `parts` in place."""

    def __init__(self, pairs: LikePairs, parts: LearnedFactors, aim: ContrastiveTask, rate: float, epochs: int, seed: int) -> None:
        self.aim, self.parts, self._by_user = aim, parts, pairs.by_user()
        self._likes, self._item_count = len(pairs), pairs.item_count
        self._random = np.random.default_rng((seed, 53))
        self._users = np.flatnonzero(self._by_user.lengths)
        self._weights = _weights(self._by_user.lengths, aim.damping)
        sampled = min(SAMPLE, pairs.item_count)
        self._at_once = max(1, min(USERS, CELLS // sampled, len(self._users) // STEPS))
        self._rates = _rates(rate, epochs * -(-len(self._users) // self._at_once))
        self._own, self._items, self._level, self._liked = (Adam(table) for table in (parts.own, parts.items, parts.level, parts.liked))

    def epoch(self) -> float:
        """Trains on every like once; returns the loss per like."""
        order = self._random.permutation(self._users)
        total = sum(self._step(order[at : at + self._at_once]) for at in range(0, len(order), self._at_once))
        return total / self._likes

    def _step(self, users: Ints) -> float:
        rate, aim, parts = next(self._rates), self.aim, self.parts
        lengths = self._by_user.lengths[users]
        rows = np.repeat(np.arange(len(users)), lengths)
        items = np.concatenate([self._by_user.of(user) for user in users])
        columns, places, weights = self._columns(items)
        level = parts.level[columns]
        theirs = parts.items[columns]

        queries = parts.own[users]
        if aim.blend:
            shown = np.zeros((len(users), len(level)), np.float32)
            shown[rows, places] = (self._random.random(len(rows), np.float32) < KEEP_SHARE) / np.float32(KEEP_SHARE)
            shown *= _scale(lengths)[:, None]
            queries = queries + shown @ parts.liked[columns]
        scores = queries @ theirs.T
        scores += level
        slopes, loss = _slopes(aim, scores, rows, places, lengths, weights, self._item_count)
        slopes *= self._weights[users][:, None]

        met = np.bincount(places, minlength=len(level)) + weights * (len(rows) / self._item_count)
        small = np.float32(aim.regularisation)
        towards = slopes @ theirs
        if aim.blend:
            self._liked.step(columns, shown.T @ towards + small * _column(met, theirs) * parts.liked[columns], rate)
        self._items.step(columns, slopes.T @ queries + small * _column(met, theirs) * theirs, rate)
        self._level.step(columns, slopes.sum(axis=0), rate)
        self._own.step(users, towards + small * _column(lengths + FIRM, towards) * parts.own[users], rate)
        return loss

    def _columns(self, items: Ints) -> tuple[Ints | slice, Ints, Floats]:
        """Returns the items of a step, each like's place among them, and each item's weight as a negative."""
        if self._item_count <= SAMPLE:
            return slice(None), items, np.ones(self._item_count, np.float32)
        drawn = self._random.choice(self._item_count, SAMPLE, replace=False, shuffle=False)
        columns, places = np.unique(np.concatenate([drawn, items]), return_inverse=True)
        weights = np.zeros(len(columns), np.float32)
        weights[places[:SAMPLE]] = self._item_count / SAMPLE
        return columns, places[SAMPLE:], weights


def _slopes(
    aim: ContrastiveTask, scores: Floats, rows: Ints, places: Ints, lengths: Ints, weights: Floats, item_count: int
) -> tuple[Floats, float]:
    """Returns the gradient by score and the loss of all likes; overwrites `scores`."""
    each = (aim.negatives / np.maximum(item_count - lengths, 1)).astype(np.float32)
    if aim.loss == "softmax":
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        positives = scores[rows, places]
        scores *= weights
        scores[rows, places] = 0
        against = scores.sum(axis=1) * each
        total = positives + against[rows] + np.float32(1e-30)
        right = positives / total
        scores *= (np.bincount(rows, 1 / total, len(lengths)) * each)[:, None].astype(np.float32)
        scores[rows, places] = right - 1
        return scores, -float(np.log(right + np.float32(1e-30)).sum(dtype=np.float64))
    np.clip(scores, -_MOST, _MOST, out=scores)
    positives = scores[rows, places]
    odds = np.exp(scores)
    missed = np.log1p(odds) * weights
    missed[rows, places] = 0
    against = each * lengths
    loss = float(np.log1p(np.exp(-positives)).sum(dtype=np.float64)) + float(against @ missed.sum(axis=1))
    np.divide(odds, odds + 1, out=scores)
    right = scores[rows, places]
    scores *= weights
    scores *= against[:, None]
    scores[rows, places] = right - 1
    return scores, loss


def _scale(lengths: Ints) -> Floats:
    scale: Floats = (1 / np.sqrt(np.maximum(lengths, 1))).astype(np.float32)
    return scale


def _weights(lengths: Ints, damping: float) -> Floats:
    """Returns the weight of each user's likes; the mean over all likes is 1."""
    there = np.maximum(lengths, 1).astype(np.float64)
    raw = there**-damping
    weights: Floats = (raw * (lengths.sum() / max(float((raw * lengths).sum()), 1e-9))).astype(np.float32)
    return weights


def _rates(rate: float, steps: int) -> Iterator[float]:
    for step in range(1, steps + 1):
        done = step / (steps + 1)
        yield rate * min(1.0, done / WARM) * (1 - done)
