"""Describes a data file column by column, in streaming passes."""

from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.cli_source import open_anywhere
from pipelines.data.sources import readable
from shared.contracts.datatools import DescribedData

_COUNTED = 1_000_000
"""Up to this number, distinct values are counted; above, their number is estimated and no values are listed."""


def described(uri: str, top: int, scratch: Path) -> DescribedData:
    source = open_anywhere(uri, scratch)
    frame = source.frame
    with readable(source.name):
        schema = frame.collect_schema()
        rows = int(frame.select(pl.len()).collect(engine="streaming").item())
        columns = [_column(frame.select(name), name, dtype, top) for name, dtype in schema.items()]
    return DescribedData(uri=uri, rows=rows, columns=tuple(columns))


def _column(frame: pl.LazyFrame, name: str, dtype: pl.DataType, top: int) -> DescribedData.Column:
    column = pl.col(name)
    lists = isinstance(dtype, pl.List)
    values = frame.select(column.list.explode(keep_nulls=False, empty_as_null=False)) if lists else frame
    facts = frame.select(nulls=column.null_count()).collect(engine="streaming").row(0, named=True)
    fields: dict[str, Any] = {"name": name, "type": str(dtype), "nulls": int(facts["nulls"])}
    if lists:
        shortest, longest = (
            frame.select(column.list.len().min().alias("a"), column.list.len().max().alias("b")).collect(engine="streaming").row(0)
        )
        fields |= {"shortest": shortest, "longest": longest}
    if dtype.is_nested() and not lists:
        return DescribedData.Column(**fields)
    low, high, about = (
        values.select(low=column.min(), high=column.max(), about=column.drop_nulls().approx_n_unique()).collect(engine="streaming").row(0)
    )
    fields |= {"min": _plain(low), "max": _plain(high), "distinct": about, "estimated": True}
    if about <= _COUNTED:
        counted = values.drop_nulls().group_by(name).len("rows").collect(engine="streaming")
        most = counted.sort(["rows", name], descending=[True, False]).head(top)
        fields |= {"distinct": len(counted), "estimated": False, "top": tuple((_plain(value), rows) for value, rows in most.rows())}
    return DescribedData.Column(**fields)


def _plain(value: Any) -> Any:
    """Converts a value for JSON."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value[:20].hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
