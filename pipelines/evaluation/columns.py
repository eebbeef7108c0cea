"""Slices by columns of the users and items tables."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from pipelines.evaluation.slices import MOST_VALUES, Slice, by_values

PARTS = 4
"""Number of ranges of a numeric column with many values; each has about equally many rows of the table."""
FEW = 30
"""Most values of a column for automatic slices: columns with more values hold names, not categories."""
_KEY, _VALUE, _ROW = "~key", "~value", "~row"


def by_column(column: str, table: pl.DataFrame, key: str, keys: pl.Series) -> tuple[Slice, ...]:
    """Returns the slices of a column; `keys` are the cases' keys in order, compared as text. The last row of a key counts."""
    return _sliced(column, words(table[column]), table[key], keys)


def by_table(table: pl.DataFrame, key: str, keys: pl.Series) -> tuple[Slice, ...]:
    """Returns the slices of every categorical column: words, or lists of words, with few distinct values."""
    slices: list[Slice] = []
    for column in table.columns:
        dtype = table[column].dtype
        kinds = dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean) or (isinstance(dtype, pl.List) and dtype.inner == pl.String)
        if column == key or not kinds:
            continue
        values = words(table[column])
        if 1 < values.explode(empty_as_null=False, keep_nulls=False).n_unique() <= FEW:
            slices += _sliced(column, values, table[key], keys)
    return tuple(slices)


def words(values: pl.Series) -> pl.Series:
    """Returns a list of words per row: '|' separates words, and numbers with many values become a few ranges."""
    if values.dtype.is_numeric() and values.n_unique() > MOST_VALUES:
        return _stretches(values.cast(pl.Float64).fill_nan(None))
    if isinstance(values.dtype, pl.List):
        return values.cast(pl.List(pl.String))
    return values.cast(pl.String).str.split("|")


def _stretches(values: pl.Series) -> pl.Series:
    there = values.is_not_null().to_numpy()
    numbers = values.to_numpy()
    bounds = np.unique(np.quantile(numbers[there], np.linspace(0, 1, PARTS + 1)[1:-1]))
    ends = [f"{bound:g}" for bound in bounds]
    names = [f"up to {ends[0]}", *(f"above {low} to {high}" for low, high in pairwise(ends)), f"above {ends[-1]}"]
    places = np.searchsorted(bounds, numbers, side="left")
    return pl.Series([[names[place]] if present else None for place, present in zip(places, there, strict=True)], dtype=pl.List(pl.String))


def _sliced(column: str, values: pl.Series, table: pl.Series, keys: pl.Series) -> tuple[Slice, ...]:
    of = pl.DataFrame({_KEY: table.cast(pl.String), _VALUE: values}).unique(_KEY, keep="last", maintain_order=True).with_row_index(_ROW)
    key_rows = keys.cast(pl.String).to_frame(_KEY).join(of.select(_KEY, _ROW), on=_KEY, how="left", maintain_order="left")
    return by_values(column, of[_VALUE], key_rows[_ROW].cast(pl.Int64).fill_null(-1).to_numpy())
