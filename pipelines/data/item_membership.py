"""Tests for every interaction whether the items table has its item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

_CLOSE = 16
"""Up to this average distance between keys, an array is used; otherwise a search."""


@dataclass(frozen=True)
class KnownItems:
    """Items of the items table: their sorted keys, and the text ids of these keys, if ids are text."""

    keys: np.ndarray[Any, np.dtype[np.int64]]
    ids: pl.Series | None = None


def other_id(column: str, text_column: str, items: KnownItems) -> pl.Expr:
    """Returns the id of the item that has a row's key, if it is not the row's id; null otherwise."""
    assert items.ids is not None
    item_keys, ids = items.keys, items.ids

    def other(rows: pl.Series) -> pl.Series:
        keys, texts = rows.struct.field(column), rows.struct.field(text_column)
        if not len(item_keys):
            return pl.Series([None] * len(rows), dtype=pl.String)
        places = np.clip(np.searchsorted(item_keys, keys.fill_null(0).to_numpy()), 0, len(item_keys) - 1)
        of_key = ids.gather(places)
        return pl.select(pl.when((keys == pl.Series(item_keys[places])) & (of_key != texts)).then(of_key)).to_series()

    return pl.struct(column, text_column).map_batches(other, pl.String, is_elementwise=True)


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
