"""Prepared columns for NVTabular: plain, without nulls or lists.

pandas and cuDF differ in nulls and lists, and pandas turns an int64 with a null into a float, which loses precision. So nulls have the
served unit's values (smallest int64, blank text, NaN), and a list becomes numbered columns: `genres#0`, `genres#1` and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from pipelines.features.columns import BLANK, Column, Raw
from shared.domain.errors import Invalid

NAN = float("nan")
PASSED_THROUGH = "~kept."
"""Name prefix of passed-through columns."""


def parts(name: str, width: int | None) -> list[str]:
    """Returns the columns of a value."""
    return [name] if width is None else [f"{name}#{at}" for at in range(width)]


def width_of(column: Column) -> int | None:
    if not column.many:
        return None
    assert isinstance(column, Raw) and column.width is not None, f"how long '{column.name}' is must be known"
    return column.width


def plain(column: Column, width: int | None) -> list[pl.Expr]:
    """Returns the expressions for a prepared column."""
    source, blank = pl.col(column.name), BLANK.get(column.kind, NAN)
    typed = source.cast(pl.Float32) if column.kind == "float32" and not column.many else source
    if width is None:
        return [typed.fill_null(blank).alias(column.name)]
    dtype = {"int64": pl.Int64, "string": pl.String, "float32": pl.Float32}[column.kind]
    return [
        source.list.get(at, null_on_oob=True).cast(dtype).fill_null(blank).alias(name) for at, name in enumerate(parts(column.name, width))
    ]


def passing(frame: pl.LazyFrame, keep: Iterable[str | pl.Expr]) -> tuple[list[pl.Expr], pl.Schema]:
    """Returns expressions for passed-through columns, and their original schema."""
    exprs = [pl.col(column) if isinstance(column, str) else column for column in keep]
    schema = frame.select(exprs).collect_schema()
    handed = []
    for expr, (name, dtype) in zip(exprs, schema.items(), strict=True):
        if isinstance(dtype, pl.List | pl.Array):
            raise Invalid(f"features: NVTabular cannot keep the list column '{name}' unchanged")
        blank = blank_of(dtype)
        handed.append((expr if blank is None else expr.fill_null(blank)).alias(f"{PASSED_THROUGH}{name}"))
    return handed, schema


def blank_of(dtype: pl.DataType) -> Any:
    if dtype == pl.String:
        return BLANK["string"]
    return BLANK["int64"] if dtype == pl.Int64 else None


def restored(schema: pl.Schema) -> list[pl.Expr]:
    """Restores names and nulls of passed-through columns."""
    columns = []
    for name, dtype in schema.items():
        column, blank = pl.col(f"{PASSED_THROUGH}{name}").cast(dtype), blank_of(dtype)
        columns.append((column if blank is None else column.replace(blank, None)).alias(name))
    return columns
