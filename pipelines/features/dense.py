"""Lookup tables for keys that are close integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

_APART = 1_000_000


@dataclass(frozen=True)
class DenseMap:
    """Map from close integers to other integers: an array, many times faster than a hash."""

    low: int
    table: NDArray[np.int32]
    """The first and last places are for missing keys."""

    def at(self, column: str) -> pl.Expr:
        """Looks up a column; nulls count as missing."""
        return pl.col(column).map_batches(lambda values: pl.Series(self.of(values)), pl.Int32, is_elementwise=True)

    def of(self, values: pl.Series) -> NDArray[np.int32]:
        low, high = self.low, self.low + len(self.table) - 1
        mapped: NDArray[np.int32] = self.table[np.clip(values.cast(pl.Int64).fill_null(low).to_numpy(), low, high) - low]
        return mapped


def dense(keys: pl.Series, values: NDArray[np.int32], missing: int) -> DenseMap | None:
    """Returns None for text keys and for keys that are too far apart."""
    if not keys.dtype.is_integer() or not len(keys):
        return None
    low, high = int(keys.min()), int(keys.max())  # type: ignore[arg-type]
    if high - low > _APART + 8 * len(keys) or low <= -(2**63) + 1 or high >= 2**63 - 2:
        return None
    table = np.full(high - low + 3, missing, np.int32)
    table[keys.to_numpy().astype(np.int64) - (low - 1)] = values
    return DenseMap(low - 1, table)
