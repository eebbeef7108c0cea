"""Fitted tables by key for target, count and lag, with a last row for missing keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, Column
from pipelines.features.dense import dense
from pipelines.features.lowering import Lowering


def place(build: Lowering, columns: tuple[Column, ...], keys: pl.DataFrame) -> str:
    """Returns the int64 row of each combination of values; `len(keys)` for missing ones, nulls included."""
    missing = len(keys)
    if len(columns) == 1:
        column = columns[0]
        if column.kind == "code":
            return _by_code(build, column, keys)
        return build.look_up(column, keys.to_series(0), 0, missing, missing)
    numbers, sizes = [], []
    for column, name in zip(columns, keys.columns, strict=True):
        values = keys[name].unique().sort()
        numbers.append(_number(build, column, values))
        sizes.append(len(values) + 1)
    combined, ours = numbers[0], _numbers(keys, 0)
    for at in range(1, len(columns)):
        size = np.array(sizes[at], np.int64)
        combined = build.node("Add", build.node("Mul", combined, build.constant(size)), numbers[at])
        ours = ours * sizes[at] + _numbers(keys, at)
    # LabelEncoder needs an entry: without keys, the entry equals the default
    table: dict[str, Any] = {"keys_int64s": ours.tolist() or [0], "values_int64s": list(range(missing)) or [0], "default_int64": missing}
    return build.node("LabelEncoder", combined, domain="ai.onnx.ml", **table)


def gather(build: Lowering, rows: str, values: NDArray[Any]) -> str:
    """Gathers rows of `values`, whose last row is for missing keys."""
    return build.node("Gather", build.constant(values), rows, axis=0)


def _number(build: Lowering, column: Column, values: pl.Series) -> str:
    missing = len(values)
    if column.kind == "code":
        return _by_code(build, column, values.to_frame())
    return build.look_up(column, values, 0, missing, missing)


def _numbers(keys: pl.DataFrame, at: int) -> NDArray[np.int64]:
    values = keys.to_series(at)
    positions: NDArray[np.int64] = values.unique().sort().search_sorted(values).to_numpy().astype(np.int64)
    return positions


def _by_code(build: Lowering, column: Column, keys: pl.DataFrame) -> str:
    """Looks up codes, which are small numbers, in a plain table."""
    codes, missing = keys.to_series(0).to_numpy(), len(keys)
    rows = np.full(int(codes.max(initial=0)) + 2, missing, np.int64)
    rows[codes] = np.arange(missing)
    last = build.constant(np.array(len(rows) - 1, np.int64))
    return gather(build, build.node("Min", build.cast(build.value(column), "INT64"), last), rows)


def located(frame: pl.LazyFrame, columns: tuple[Column, ...], keys: pl.DataFrame, name: str) -> pl.LazyFrame:
    """Adds the row of each combination of values as a column; `len(keys)` for missing ones."""
    missing = len(keys)
    if len(columns) == 1 and (table := dense(keys.to_series(0), np.arange(missing, dtype=np.int32), missing)) is not None:
        return frame.with_columns(table.at(columns[0].name).alias(name))
    renamed = keys.rename({old: column.name for old, column in zip(keys.columns, columns, strict=True)})
    table_ = renamed.with_columns(pl.int_range(missing, dtype=pl.Int32, eager=True).alias(name))
    joined = frame.join(table_.lazy(), on=[column.name for column in columns], how="left", maintain_order="left")
    return joined.with_columns(pl.col(name).fill_null(missing))


def take_rows(place: str, values: NDArray[Any]) -> pl.Expr:
    """Takes rows of `values`, whose last row is for missing keys."""
    inner = pl.Series(values[:0]).dtype
    return pl.col(place).map_batches(lambda rows: pl.Series(values[rows.to_numpy()], dtype=inner), inner, is_elementwise=True)


def key_kinds(columns: tuple[Column, ...]) -> bool:
    """True if the columns can be keys: single ids, words or codes."""
    return all(not column.many and (column.kind in BLANK or column.kind == "code") for column in columns)
