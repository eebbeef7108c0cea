"""Point-in-time join: the values of a key at a given time, by the rules of the feature store.

Takes the key's newest value whose event time isn't after the given time, unless the time to live has passed. Between two values of one
event time the greater digest wins, as in shared.domain.feature_values; here whole columns are processed.

A table with one row per key becomes a table with one row per stretch of equal values. Rows are then found by time, so data streams in its
own order, whatever its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, polars_type
from pipelines.features.dense import DenseMap, dense
from shared.contracts.online import OnlineColumn, View

Ints = NDArray[np.int64]
KEY, AT = "~key", "~at"
"""Columns of a history besides the view's own; times are whole microseconds since 1970."""
SINCE = "~since"
"""Start of a table row's stretch: microseconds since 1970, `NEVER` for the beginning of time."""
NEVER = -(2**63)
_TIME = "~time"
_LONG = 2**62
"""Longer than all time, in microseconds."""


def read_history(path: Path, view: View) -> pl.LazyFrame:
    """Reads an exported history (JSON lines): one row per key and time. Values that don't fit the column's type become null."""
    fields = [pl.Field(column.name, column_type(column)) for column in view.columns]
    schema = pl.Schema({"key": pl.Int64(), "at": pl.Int64(), "values": pl.Struct(fields)})
    there = path.stat().st_size > 0
    rows = pl.scan_ndjson(path, schema=schema, ignore_errors=True) if there else pl.LazyFrame(schema=schema)
    return rows.rename({"key": KEY, "at": AT}).unnest("values")


def microseconds(seconds: pl.Expr) -> pl.Expr:
    """Rounds to whole microseconds, as in a history."""
    return (seconds * 1_000_000).round().cast(pl.Int64)


def stretches(keys: pl.Series, history: pl.LazyFrame, view: View, until: int) -> pl.DataFrame:
    """Returns the starts of the keys' stretches until a moment: `KEY`, `SINCE`, and `AT`, the time of the value, null if no value applies.
    Keys are sorted and unique."""
    wanted, nothing = pl.LazyFrame({KEY: keys}), pl.lit(None, pl.Int64).alias(AT)
    rows = history.select(KEY, AT).filter(pl.col(AT) <= until).join(wanted, on=KEY, how="semi").sort(KEY, AT)
    parts = [wanted.select(KEY, pl.lit(NEVER, pl.Int64).alias(SINCE), nothing), rows.select(KEY, pl.col(AT).alias(SINCE), AT)]
    if view.ttl is not None:
        lasts = min(view.ttl // timedelta(microseconds=1), _LONG)
        overruled = pl.when(pl.col(KEY).shift(-1) == pl.col(KEY)).then(pl.col(AT).shift(-1)).otherwise(until + 1)
        over = rows.select(KEY, (pl.col(AT) + lasts + 1).alias(SINCE), nothing, overruled.alias("~overruled"))
        parts.append(over.filter(pl.col(SINCE) < pl.col("~overruled")).drop("~overruled"))
    return pl.concat(parts).sort(KEY, SINCE).collect(engine="streaming")


def join_history(table: pl.DataFrame, key: str, began: pl.DataFrame, history: pl.LazyFrame, view: View) -> pl.DataFrame:
    """Expands a table of one row per key to one row per stretch, sorted by key and `SINCE`. The view's values replace those of the table;
    columns without a value stay. Consecutive equal stretches of a key are merged."""
    columns = [column for column in view.columns if column.name in table.columns]
    values = history.select(KEY, AT, *(pl.col(column.name).alias(_history_name(column)) for column in columns))
    joined = (
        began.lazy()
        .join(values, on=[KEY, AT], how="left")
        .join(table.lazy(), left_on=KEY, right_on=key, how="left")
        .select(pl.col(KEY).alias(key), *(name for name in table.columns if name != key), SINCE, *map(_history_name, columns))
        .with_columns(_overruled(column) for column in columns)
        .select(*table.columns, SINCE)
        .sort(key, SINCE)
        .collect(engine="streaming")
    )
    same = [pl.col(name).eq_missing(pl.col(name).shift(1)) for name in (key, *(column.name for column in columns))]
    return joined.filter(~pl.all_horizontal(same))


def _history_name(column: OnlineColumn) -> str:
    return f"~said.{column.name}"


def _overruled(column: OnlineColumn) -> pl.Expr:
    """Treats a blank as no value, as the served unit does."""
    history_value = pl.col(_history_name(column))
    value = history_value
    if column.dtype in BLANK:
        blank = pl.lit(BLANK[column.dtype], polars_type(column.dtype))
        value = pl.when(history_value != blank).then(history_value)
        if column.width is not None:
            value = history_value.list.eval(pl.when(pl.element() != blank).then(pl.element()))
    return pl.when(history_value.is_not_null()).then(value).otherwise(pl.col(column.name)).alias(column.name)


@dataclass(frozen=True, eq=False)
class ValidityPeriods:
    """Row search in a table with one row per stretch."""

    keys: Ints
    """Sorted and unique."""
    starts: Ints
    """First row of each key, and the end of the last key's rows."""
    since: Ints

    @classmethod
    def of(cls, keys: pl.Series, since: pl.Series) -> Self:
        """Takes a table's columns, sorted by both."""
        counted = keys.rle().struct.unnest()
        return cls(counted["value"].to_numpy(), np.append(0, np.cumsum(counted["len"].to_numpy())).astype(np.int64), since.to_numpy())

    @property
    def last(self) -> Ints:
        """Newest row of each key."""
        return self.starts[1:] - 1

    @cached_property
    def _near(self) -> DenseMap | None:
        return dense(pl.Series(self.keys), np.arange(len(self.keys), dtype=np.int32), len(self.keys))

    @cached_property
    def _step(self) -> int:
        """First step of a search: the largest power of two within the row counts of the keys."""
        return 1 << max(0, int(np.diff(self.starts).max(initial=1)).bit_length() - 1)

    def rows(self, keys: pl.Series, times: Ints) -> Ints:
        """Returns the row of each key at its time, or the key's first row for earlier times. All keys must exist."""
        places = np.searchsorted(self.keys, keys.to_numpy()) if self._near is None else self._near.of(keys)
        rows, end = self.starts[places], self.starts[places + 1]
        step = self._step
        while step:
            ahead = rows + step
            rows = np.where((ahead < end) & (self.since[np.minimum(ahead, len(self.since) - 1)] <= times), ahead, rows)
            step //= 2
        return rows

    def row(self, key: str, time: pl.Expr) -> pl.Expr:
        """Returns the same as an expression over batches."""

        def find_rows(some: pl.Series) -> pl.Series:
            return pl.Series(self.rows(some.struct.field(key), some.struct.field(_TIME).to_numpy()).astype(np.int32))

        return pl.struct(pl.col(key), time.alias(_TIME)).map_batches(find_rows, pl.Int32, is_elementwise=True)


def column_type(column: OnlineColumn) -> pl.DataType:
    return polars_type(column.dtype) if column.width is None else pl.List(polars_type(column.dtype))
