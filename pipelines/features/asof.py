"""Point in time: what counted of a key when something happened, as a feature store would have said it then.

For each row the newest value of its key whose event time isn't after the row's, unless that was older than the time to live by then. Of two
values of one event time the one of the greater digest counts, as in shared.domain.stored, whose meaning this is, over whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl

from shared.contracts.online import OnlineColumn, View
from shared.domain.stored import StoredRow, instant

_TYPES = {"int64": pl.Int64(), "float32": pl.Float32(), "string": pl.String()}
AT = "at"
"""Of a history: whole microseconds since 1970."""
_AT, _ROW, _UNTIL = "~at", "~row", "~until"


def read_history(path: Path, view: View) -> pl.LazyFrame:
    """An exported history (JSON lines): key, at, and the view's columns; one row a key and time. A value that isn't of its column's type
    by now isn't known."""
    fields = [pl.Field(one.name, column_type(one)) for one in view.columns]
    schema = pl.Schema({"key": pl.Int64(), AT: pl.Int64(), "values": pl.Struct(fields)})
    if not path.stat().st_size:
        return pl.DataFrame(schema=schema).lazy().unnest("values")
    return pl.scan_ndjson(path, schema=schema, ignore_errors=True).unnest("values")


def history_of(rows: Sequence[StoredRow], view: View) -> pl.DataFrame:
    """The same out of rows; of those of one key and time the one that counts."""
    counts = {(row.key, row.at): row for row in sorted(rows, key=lambda row: row.rank)}
    schema: dict[str, pl.DataType] = {"key": pl.Int64(), AT: pl.Int64()} | {one.name: column_type(one) for one in view.columns}
    names = [one.name for one in view.columns]
    values = [
        (row.key, instant(row.at), *(list(one) if isinstance(one := row.values.get(name), tuple) else one for name in names))
        for row in counts.values()
    ]
    return pl.DataFrame(values, schema=schema, orient="row")


def as_of(rows: pl.LazyFrame, history: pl.LazyFrame, view: View, key: str, time: str) -> pl.LazyFrame:
    """`rows` with the view's columns as they were known at each row's time (whole microseconds since 1970); null where nothing was. The
    rows stay in their order."""
    said = history.select(pl.col("key"), pl.col(AT), *(one.name for one in view.columns)).sort(AT)
    asked = rows.with_row_index(_ROW).sort(time)
    found = asked.join_asof(
        said.with_columns(pl.col(AT).alias(_AT)),
        left_on=time,
        right_on=AT,
        by_left=key,
        by_right="key",
        strategy="backward",
        check_sortedness=False,
    )
    if view.ttl is not None:
        fresh = pl.col(time) - pl.col(_AT) <= view.ttl // timedelta(microseconds=1)
        found = found.with_columns(pl.when(fresh).then(pl.col(one.name)).alias(one.name) for one in view.columns)
    return found.sort(_ROW).drop(_ROW, _AT)


def overlaid(table: pl.LazyFrame, key: str, history: pl.LazyFrame, view: View, until: int) -> pl.LazyFrame:
    """A table of one row a key, with what the view knew at one moment (microseconds since 1970) in the place of what the table says;
    what a row of the view doesn't name stays."""
    moments = table.select(pl.col(key), pl.lit(until, pl.Int64).alias(_UNTIL))
    known = as_of(moments, history, view, key, _UNTIL).drop(_UNTIL)
    there = set(table.collect_schema().names())
    names = [one.name for one in view.columns if one.name in there]
    joined = table.join(known.select(key, *(pl.col(name).alias(f"~{name}") for name in names)), on=key, how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce(f"~{name}", name).alias(name) for name in names).drop(f"~{name}" for name in names)


def column_type(one: OnlineColumn) -> pl.DataType:
    return _TYPES[one.dtype] if one.width is None else pl.List(_TYPES[one.dtype])
