"""Point in time: what counted of a key when something happened, as a feature store would have said it then.

The newest value of the key whose event time isn't after that moment, unless it was older than the time to live by then. Of two values of
one event time the one of the greater digest counts, as in shared.domain.feature_values, whose meaning this is, over whole columns.

A table of one row a key so becomes one of a row for each stretch of time in which the same counted. A moment's row is searched in it, so
that rows of data stream past in their own order, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, polars_type
from pipelines.features.dense import Dense, dense
from shared.contracts.online import OnlineColumn, View
from shared.domain.feature_values import StoredRow, instant

Ints = NDArray[np.int64]
KEY, AT = "~key", "~at"
"""Of a history, beside the view's own columns; times are whole microseconds since 1970."""
SINCE = "~since"
"""When a row of a table began to count: microseconds since 1970, `NEVER` for before all time."""
NEVER = -(2**63)
_TIME = "~time"
_LONG = 2**62
"""Longer than all time, in microseconds."""


def read_history(path: Path, view: View) -> pl.LazyFrame:
    """An exported history (JSON lines): one row a key and time. A value that isn't of its column's type by now isn't known."""
    fields = [pl.Field(column.name, column_type(column)) for column in view.columns]
    schema = pl.Schema({"key": pl.Int64(), "at": pl.Int64(), "values": pl.Struct(fields)})
    there = path.stat().st_size > 0
    rows = pl.scan_ndjson(path, schema=schema, ignore_errors=True) if there else pl.LazyFrame(schema=schema)
    return rows.rename({"key": KEY, "at": AT}).unnest("values")


def history_of(rows: Sequence[StoredRow], view: View) -> pl.DataFrame:
    """The same out of rows; of those of one key and time the one that counts."""
    counts = {(row.key, row.at): row for row in sorted(rows, key=lambda row: row.rank)}
    schema: dict[str, pl.DataType] = {KEY: pl.Int64(), AT: pl.Int64()} | {column.name: column_type(column) for column in view.columns}
    names = [column.name for column in view.columns]
    values = [
        (row.key, instant(row.at), *(list(value) if isinstance(value := row.values.get(name), tuple) else value for name in names))
        for row in counts.values()
    ]
    return pl.DataFrame(values, schema=schema, orient="row")


def microseconds(seconds: pl.Expr) -> pl.Expr:
    """As a history counts them: a float's nearest one."""
    return (seconds * 1_000_000).round().cast(pl.Int64)


def stretches(keys: pl.Series, history: pl.LazyFrame, view: View, until: int) -> pl.DataFrame:
    """When something else began to count of those keys (sorted, each once), up to a moment: `KEY`, `SINCE`, and `AT`, when it was said;
    null where nothing of the view counts, as before all that was said."""
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
    """A table of one row a key, as one of a row for each of those stretches, by key and `SINCE`: with what the view said then in the place
    of what the table says. What a row of the view doesn't name stays. A key's stretches that say the same one after the other are one."""
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
    """A blank says that there is no value, as it does to a served unit."""
    history_value = pl.col(_history_name(column))
    value = history_value
    if column.dtype in BLANK:
        blank = pl.lit(BLANK[column.dtype], polars_type(column.dtype))
        value = pl.when(history_value != blank).then(history_value)
        if column.width is not None:
            value = history_value.list.eval(pl.when(pl.element() != blank).then(pl.element()))
    return pl.when(history_value.is_not_null()).then(value).otherwise(pl.col(column.name)).alias(column.name)


@dataclass(frozen=True, eq=False)
class Stretches:
    """A table of a row for each stretch, to find rows in."""

    keys: Ints
    """Each once, sorted."""
    starts: Ints
    """Of each key's rows, and the end of the last one's."""
    since: Ints

    @classmethod
    def of(cls, keys: pl.Series, since: pl.Series) -> Self:
        """Of a table's columns; it is sorted by both."""
        counted = keys.rle().struct.unnest()
        return cls(counted["value"].to_numpy(), np.append(0, np.cumsum(counted["len"].to_numpy())).astype(np.int64), since.to_numpy())

    @property
    def last(self) -> Ints:
        """Each key's newest row."""
        return self.starts[1:] - 1

    @cached_property
    def _near(self) -> Dense | None:
        return dense(pl.Series(self.keys), np.arange(len(self.keys), dtype=np.int32), len(self.keys))

    @cached_property
    def _step(self) -> int:
        """What a search begins with: the largest power of two among the numbers of a key's rows."""
        return 1 << max(0, int(np.diff(self.starts).max(initial=1)).bit_length() - 1)

    def rows(self, keys: pl.Series, times: Ints) -> Ints:
        """Which row counted of each key at a time; the keys are there. Before a key's first row that one does."""
        places = np.searchsorted(self.keys, keys.to_numpy()) if self._near is None else self._near.of(keys)
        rows, end = self.starts[places], self.starts[places + 1]
        step = self._step
        while step:
            ahead = rows + step
            rows = np.where((ahead < end) & (self.since[np.minimum(ahead, len(self.since) - 1)] <= times), ahead, rows)
            step //= 2
        return rows

    def row(self, key: str, time: pl.Expr) -> pl.Expr:
        """The same as a column of batches."""

        def find_rows(some: pl.Series) -> pl.Series:
            return pl.Series(self.rows(some.struct.field(key), some.struct.field(_TIME).to_numpy()).astype(np.int32))

        return pl.struct(pl.col(key), time.alias(_TIME)).map_batches(find_rows, pl.Int32, is_elementwise=True)


def column_type(column: OnlineColumn) -> pl.DataType:
    return polars_type(column.dtype) if column.width is None else pl.List(polars_type(column.dtype))
