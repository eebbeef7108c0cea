"""A fitted table by key: what target, count and lag look up, with one row for what no row has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, Column
from pipelines.features.lowering import Lowering


def place(build: Lowering, columns: tuple[Column, ...], keys: pl.DataFrame) -> str:
    """The row of each combination of values, int64; as many as there are rows for what isn't there, nulls included."""
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
    found, ours = numbers[0], _numbers(keys, 0)
    for at in range(1, len(columns)):
        size = np.array(sizes[at], np.int64)
        found = build.node("Add", build.node("Mul", found, build.constant(size)), numbers[at])
        ours = ours * sizes[at] + _numbers(keys, at)
    table = {"keys_int64s": ours.tolist(), "values_int64s": list(range(missing)), "default_int64": missing}
    return build.node("LabelEncoder", found, domain="ai.onnx.ml", **table)


def gather(build: Lowering, rows: str, values: NDArray[Any]) -> str:
    """Of those rows; `values` has one more for what isn't there."""
    return build.node("Gather", build.constant(values), rows, axis=0)


def _number(build: Lowering, column: Column, values: pl.Series) -> str:
    missing = len(values)
    if column.kind == "code":
        return _by_code(build, column, values.to_frame())
    return build.look_up(column, values, 0, missing, missing)


def _numbers(keys: pl.DataFrame, at: int) -> NDArray[np.int64]:
    values = keys.to_series(at)
    found: NDArray[np.int64] = values.unique().sort().search_sorted(values).to_numpy().astype(np.int64)
    return found


def _by_code(build: Lowering, column: Column, keys: pl.DataFrame) -> str:
    """Codes are small numbers: a plain table of rows."""
    codes, missing = keys.to_series(0).to_numpy(), len(keys)
    rows = np.full(int(codes.max(initial=0)) + 2, missing, np.int64)
    rows[codes] = np.arange(missing)
    last = build.constant(np.array(len(rows) - 1, np.int64))
    return gather(build, build.node("Min", build.cast(build.value(column), "INT64"), last), rows)


def joined(frame: pl.LazyFrame, columns: tuple[Column, ...], keys: pl.DataFrame, values: Mapping[str, pl.Series]) -> pl.LazyFrame:
    """The rows of a frame with what their keys have; nulls where they have none."""
    table = keys.rename({old: column.name for old, column in zip(keys.columns, columns, strict=True)})
    if not len(table):
        return frame.with_columns(pl.lit(None, one.dtype).alias(name) for name, one in values.items())
    table = table.with_columns(one.alias(name) for name, one in values.items())
    return frame.join(table.lazy(), on=[column.name for column in columns], how="left", maintain_order="left")


def key_kinds(columns: tuple[Column, ...]) -> bool:
    """Whether these can be keys: single ids, words or codes."""
    return all(not one.many and (one.kind in BLANK or one.kind == "code") for one in columns)
