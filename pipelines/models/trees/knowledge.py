"""Features of users, items and pairs for trees, which learn little from a key's code: counts of likes, and the fit by a factorisation.

A training row is described by knowledge from other rows: likes are split into folds, and each fold's rows are described by the likes of the
other folds. Otherwise the factorisation would recognise the likes that it was fitted on, and trees would trust it too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST
from pipelines.training.als import Factors
from pipelines.training.likes import LikePairs

Floats = NDArray[np.float32]
USER = ("likes", "taste for the popular", "fit of the likes", "spread of the fit")
ITEM = ("likes", "newest likes", "activity of who likes it")
_NEWEST = 0.1
_LARGEST = 2**15 - 1


@dataclass(frozen=True)
class Knowledge:
    """Values by code. Vectors are whole numbers, so that their inner product is exact in every runtime and in any order of summation: a
    difference in the last bit could change a tree's branch."""

    users: Floats
    items: Floats
    user_vectors: NDArray[np.int16]
    item_vectors: NDArray[np.int16]
    """Width 0 without a factorisation."""
    scale: float
    """Factor of an inner product."""

    @property
    def width(self) -> int:
        return int(self.user_vectors.shape[1])

    def fit(self, users: NDArray[Any], items: NDArray[Any]) -> Floats:
        """Returns the fit of each pair of user and item."""
        exact = np.einsum("ij,ij->i", self.user_vectors[users].astype(np.float64), self.item_vectors[items].astype(np.float64))
        fits: Floats = (exact * self.scale).astype(np.float32)
        return fits

    def fits(self, users: NDArray[Any]) -> NDArray[np.float32]:
        """Returns [users, item codes], up to rounding."""
        fits: Floats = (self.user_vectors[users].astype(np.float32) * np.float32(self.scale)) @ self.item_vectors.astype(np.float32).T
        return fits

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        names = ("users", "items", "user_vectors", "item_vectors")
        return {name: getattr(self, name) for name in names} | {"scale": np.array(self.scale)}


def knowledge_of(arrays: Mapping[str, NDArray[Any]]) -> Knowledge:
    users, items = (arrays[name].astype(np.float32) for name in ("users", "items"))
    user_vectors, item_vectors = (arrays[name].astype(np.int16) for name in ("user_vectors", "item_vectors"))
    return Knowledge(users, items, user_vectors, item_vectors, float(arrays["scale"]))


def learn(pairs: LikePairs, factors: Factors | None, like_count: int) -> Knowledge:
    """Learns from `pairs`; `like_count` is the number of all likes, to which the counts of a part are scaled up."""
    more = like_count / max(1, len(pairs))
    of_user, of_item = (
        np.log1p(np.bincount(codes, minlength=count) * more)
        for codes, count in ((pairs.users, pairs.user_count), (pairs.items, pairs.item_count))
    )
    newest = pairs.take(slice(round(len(pairs) * (1 - _NEWEST)), None) if pairs.in_order else slice(0, 0))
    late = np.log1p(np.bincount(newest.items, minlength=pairs.item_count) * more)
    users, items = (
        [of_user, _mean(pairs.users, of_item[pairs.items], pairs.user_count)],
        [of_item, late, _mean(pairs.items, of_user[pairs.users], pairs.item_count)],
    )
    user_vectors, item_vectors = (np.zeros((count, 0), np.int16) for count in (pairs.user_count, pairs.item_count))
    scale = 1.0
    mean, spread = np.zeros(pairs.user_count), np.ones(pairs.user_count)
    if factors is not None:
        (user_vectors, user_step), (item_vectors, item_step) = (_quantised(side) for side in (factors.users, factors.items))
        scale = user_step * item_step
        mean, spread = _spread(user_vectors, item_vectors, scale)
    return Knowledge(
        np.stack([*users, mean, spread], 1).astype(np.float32), np.stack(items, 1).astype(np.float32), user_vectors, item_vectors, scale
    )


def _mean(of: NDArray[Any], values: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Returns means by code; a code without values gets the mean of all values."""
    there = np.bincount(of, minlength=count)
    means = np.bincount(of, weights=values, minlength=count) / np.maximum(there, 1)
    return np.where(there > 0, means, values.mean() if len(values) else 0.0)


def _quantised(vectors: Floats) -> tuple[NDArray[np.int16], float]:
    """Returns the vectors as whole numbers, and the value of 1."""
    step = max(float(np.abs(vectors).max(initial=0)), 1e-30) / _LARGEST
    return np.round(vectors / step).astype(np.int16), step


def _spread(users: NDArray[np.int16], items: NDArray[np.int16], scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean and the standard deviation of each user's fits over the known items."""
    user_vectors, item_vectors = users.astype(np.float64), items[FIRST:].astype(np.float64)
    middle = item_vectors.mean(axis=0)
    apart = (item_vectors - middle).T @ (item_vectors - middle) / len(item_vectors)
    variance = np.einsum("ij,jk,ik->i", user_vectors, apart, user_vectors, optimize=True)
    return user_vectors @ middle * scale, np.maximum(np.sqrt(np.maximum(variance, 0)) * scale, 1e-6)
