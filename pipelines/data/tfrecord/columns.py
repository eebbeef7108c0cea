"""Converts a feature's values to a column and back, many rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.data.tfrecord.layout import TfColumn, Wire

FLAT: dict[Wire, pl.DataType] = {"int64_list": pl.Int64(), "float_list": pl.Float32(), "bytes_list": pl.Binary()}
FILLER: dict[Wire, Any] = {"int64_list": 0, "float_list": 0.0, "bytes_list": b""}


@dataclass
class ColumnBuffer:
    """Rows of a column as they arrive. `lengths`: of lists (-1 is null); `valid`: whether a row has a value, if nulls are possible."""

    values: list[Any] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    valid: list[bool] = field(default_factory=list)

    def series(self, column: TfColumn) -> pl.Series:
        flat = _typed(pl.Series(column.name, self.values, FLAT[column.wire]), column)
        if column.lists:
            return lists(flat, self.lengths)
        if not column.nulls:
            return flat
        return pl.select(pl.when(pl.Series(self.valid, dtype=pl.Boolean)).then(flat).alias(column.name)).to_series()


def lists(flat: pl.Series, lengths: Sequence[int]) -> pl.Series:
    """Builds rows of lists from flat values."""
    sizes = np.array(lengths, np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(sizes, 0))])
    array = pa.LargeListArray.from_arrays(pa.array(offsets), flat.to_arrow(), mask=pa.array(sizes < 0))
    return pl.Series(flat.name, pl.from_arrow(array))


def plain_values(series: pl.Series, column: TfColumn) -> list[Any]:
    """Returns values for a feature, without nulls."""
    if column.wire == "bytes_list":
        values: list[Any] = series.cast(pl.Binary).to_list()
        return values
    if column.wire == "float_list":
        return series.cast(pl.Float64).to_list()
    return series.to_physical().cast(pl.Int64).to_list()


def _typed(flat: pl.Series, column: TfColumn) -> pl.Series:
    dtype = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if dtype == pl.Date:
        return flat.cast(pl.Int32).cast(pl.Date)
    return flat.cast(dtype)
