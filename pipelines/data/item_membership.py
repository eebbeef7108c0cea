"""Tests for every interaction whether the items table has its item."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

_CLOSE = 16
"""Up to this average distance between keys, an array is used; otherwise a search."""


def is_known(column: str, keys: np.ndarray[Any, np.dtype[np.int64]]) -> pl.Expr:
    """Tests a column; `keys` are sorted. Values that can't be keys (null, beyond int64) count as known: other checks report them."""
    low, high = (int(keys[0]), int(keys[-1])) if len(keys) else (0, 0)
    close = high - low < _CLOSE * len(keys) + 1_000_000
    table = np.zeros(high - low + 1 if close else 0, bool)
    if close and len(keys):
        table[keys - low] = True

    def looked_up(values: pl.Series) -> pl.Series:
        at = values.to_numpy()
        if not len(keys):
            return pl.Series(np.zeros(len(at), bool))
        if close:
            return pl.Series((at >= low) & (at <= high) & table[np.clip(at, low, high) - low])
        return pl.Series(keys[np.clip(np.searchsorted(keys, at), 0, len(keys) - 1)] == at)

    value = pl.col(column).cast(pl.Int64, strict=False)
    return value.is_null() | value.fill_null(0).map_batches(looked_up, pl.Boolean, is_elementwise=True)
