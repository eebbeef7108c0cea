"""Slices by columns of the tables of users and items: what the interactions themselves don't say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from pipelines.evaluation.slices import MOST_VALUES, Slice, by_values

PARTS = 4
"""Of a column of numbers with many values: so many, with about equally many rows of the table in each."""
FEW = 30
"""Values of a column that is a slice of its own accord: more of them are names rather than kinds."""
_KEY, _VALUE, _ROW = "~key", "~value", "~row"


def by_column(column: str, table: pl.DataFrame, key: str, keys: pl.Series) -> tuple[Slice, ...]:
    """`keys`: of each case, in order; they are compared as text. Of several rows of a key the last one counts."""
    return _sliced(column, words(table[column]), table[key], keys)


def by_table(table: pl.DataFrame, key: str, keys: pl.Series) -> tuple[Slice, ...]:
    """By every column of kinds: words, or lists of words, of which there are few."""
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
    """A list of words a row: text with '|' between has several. Many numbers are cut into a few stretches."""
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
