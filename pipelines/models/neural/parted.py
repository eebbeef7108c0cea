"""A network's operations in Keras on a rank's share of a batch, with results as for the whole batch.

Dropout draws for the whole batch and takes the rank's part; batch norm uses the mean and variance of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.models.neural.operations import KerasOperations, Tiles
from pipelines.training.group import Group, RankRows


class ShardedOperations(KerasOperations):
    def __init__(
        self,
        weights: Mapping[str, Any],
        moving: Mapping[str, Any],
        chance: Any,
        half: str | None,
        tiles: Tiles,
        *,
        group: Group,
        share: RankRows,
    ) -> None:
        super().__init__(weights, moving, chance, half, tiles)
        self._group, self._share = group, share

    def dropout(self, rows: Any, rate: float) -> Any:
        from keras import random

        if not rate:
            return rows
        ones = self._arrays.ones((self._share.total, rows.shape[1]), rows.dtype)
        return rows * random.dropout(ones, rate, seed=self._chance)[self._share.rows]

    def _moments(self, wide: Any) -> tuple[Any, Any]:
        own = wide[: self._share.stop - self._share.start]
        sums = self._group.summed(self._arrays.stack([self._arrays.sum(own, axis=0), self._arrays.sum(own * own, axis=0)]))
        mean, square = sums[0] / self._share.total, sums[1] / self._share.total
        return mean, square - mean * mean
