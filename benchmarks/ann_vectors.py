"""Vectors as factorisation leaves them, as many as are wanted: trained ones, and others drawn around them.

A world's likes are factorised as a run would do it. Each further item is a trained item with a deviation of its own, drawn with the
trained vectors' covariance, and another length; queries are trained users. So spectrum, lengths and clusters are a model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.data.synthetic import LIKED, World
from pipelines.training.als import AlsTerms, begin, sweeps
from pipelines.training.likes import LikePairs

WIDTH = 64
_USERS, _ITEMS, _RATINGS = 4_000, 3_000, 400_000
_DEVIATION, _LENGTHS = 0.35, 0.3
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trained:
    items: Array
    users: Array

    def catalogue(self, count: int, seed: int) -> Array:
        random = np.random.default_rng((seed, count))
        root = np.linalg.cholesky(np.cov(self.items.T) + 1e-6 * np.eye(WIDTH)).astype(np.float32)
        parents = self.items[random.integers(len(self.items), size=count)]
        lengths = np.linalg.norm(parents, axis=1, keepdims=True)
        drawn = random.standard_normal((count, WIDTH), dtype=np.float32) @ root.T
        found = parents + _DEVIATION * lengths / np.linalg.norm(self.items, axis=1).mean() * drawn
        return np.ascontiguousarray(found * np.exp(_LENGTHS * random.standard_normal((count, 1))), dtype=np.float32)

    def queries(self, count: int, seed: int) -> Array:
        found: Array = self.users[np.random.default_rng((seed, 3)).choice(len(self.users), count, replace=False)]
        return found

    def spectrum(self) -> list[float]:
        """Singular values of the items' vectors: the first, second, fourth, ... sixty-fourth."""
        found = np.linalg.svd(self.items, compute_uv=False)
        return [round(float(found[at - 1]), 2) for at in (1, 2, 4, 8, 16, 32, 64)]


def train(seed: int) -> Trained:
    ratings = World.create(_USERS, _ITEMS, seed=seed).ratings(_RATINGS, 0, 86_400, seed)
    liked = ratings.rating >= LIKED
    users, items = (np.unique(keys[liked], return_inverse=True)[1] for keys in (ratings.user, ratings.item))
    pairs = LikePairs(users, items, int(users.max()) + 1, int(items.max()) + 1)
    factors = begin(pairs.user_count, pairs.item_count, WIDTH, seed)
    for _ in sweeps(pairs, factors, AlsTerms(0.4, 0.003), 6):
        pass
    return Trained(factors.items, factors.users)
