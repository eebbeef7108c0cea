"""Features of many Examples as flat values with the number of values in each Example, and their conversion from and to columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.data.tfrecord.layout import TfColumn, Wire

Ints = NDArray[np.int64]
_FLAT: dict[Wire, pl.DataType] = {"int64_list": pl.Int64(), "float_list": pl.Float32(), "bytes_list": pl.Binary()}


@dataclass
class Feature:
    """Values of one Example after the other; `sizes` holds their number per Example, -1 if the Example lacks the feature."""

    name: str
    wire: Wire
    values: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def pad(self, examples: int) -> None:
        """Marks the feature as absent in Examples that are not in `sizes`."""
        self.sizes.extend([-1] * (examples - len(self.sizes)))

    def flat(self) -> pl.Series:
        return pl.Series(self.name, self.values, _FLAT[self.wire])


def lists(flat: pl.Series, sizes: Ints) -> pl.Series:
    """Builds rows of lists from flat values; a size of -1 is a null."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(sizes, 0))])
    array = pa.LargeListArray.from_arrays(pa.array(offsets), flat.to_arrow(), mask=pa.array(sizes < 0))
    return pl.Series(flat.name, pl.from_arrow(array))


def wire_values(series: pl.Series, wire: Wire) -> pl.Series:
    """Converts values to the type of a feature's list."""
    if wire == "bytes_list":
        return series.cast(pl.Binary)
    return series.cast(pl.Float64) if wire == "float_list" else series.to_physical().cast(pl.Int64)


def column_values(flat: pl.Series, column: TfColumn) -> pl.Series:
    """Converts a feature's values to the column's type."""
    dtype = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    return flat.cast(pl.Int32).cast(pl.Date) if dtype == pl.Date else flat.cast(dtype)


def group_places(rows: Ints, columns: int) -> Ints:
    """Returns [columns, rows]: places of values in a shared feature, with column after column in each Example of `rows` rows."""
    first, width = np.cumsum(rows) - rows, np.repeat(rows, rows)
    row = np.arange(rows.sum()) - np.repeat(first, rows)
    places: Ints = np.repeat(first * columns, rows) + row + np.arange(columns)[:, None] * width
    return places


def sums(values: Ints, sizes: Ints) -> Ints:
    """Returns the sum of each Example's values."""
    ends = np.cumsum(sizes)
    totals = np.append(0, np.cumsum(values))
    differences: Ints = totals[ends] - totals[ends - sizes]
    return differences
