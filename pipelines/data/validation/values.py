"""Profile of a column's values: numbers by tenths, categories by most frequent values. Bounded, whatever the number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from pipelines.data.validation.grouping import KEY, grouped
from shared.contracts.strict import Strict

MOST_COLUMNS = 32
MOST_TOP = 40
MOST_DISTINCT = 100_000
"""A column with more different values is not a category (names, comments)."""
LONGEST_VALUE = 200
SAMPLED_ROWS = 500_000
_ROW = "profile.row"
TENTHS = 10


class NumberSummary(Strict):
    kind: Literal["numbers"] = "numbers"
    nulls: int
    edges: tuple[float, ...] = Field(description="Upper edges of the bins; a bin includes its own edge.")
    counts: tuple[int, ...] = Field(description="Values per bin; one bin more than edges.")


class Categories(Strict):
    kind: Literal["categories"] = "categories"
    nulls: int
    top: tuple[tuple[str, int], ...] = Field(description="Most frequent values, with their numbers of rows.")
    other: int


Column = Annotated[NumberSummary | Categories, Field(discriminator="kind")]


def counted(frame: pl.LazyFrame, name: str, edges: tuple[float, ...]) -> tuple[int, ...]:
    """Counts the values in each bin between edges."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    below = [(value <= edge).sum().alias(str(n)) for n, edge in enumerate(edges)]
    totals = frame.select(value.count().alias("all"), *below).collect(engine="streaming").row(0)
    reached = [*totals[1:], totals[0]]
    return tuple(int(now - before) for before, now in zip([0, *reached], reached, strict=False))


def named(frame: pl.LazyFrame, name: str, values: tuple[str, ...]) -> dict[str, int]:
    """Counts the given values."""
    text = pl.col(name).cast(pl.String)
    counts = frame.select(text).filter(text.is_in(values)).group_by(name).len().collect(engine="streaming")
    return dict(counts.iter_rows())


def is_number(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()


def is_category(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Boolean, pl.Categorical, pl.Enum)


def column_of(frame: pl.LazyFrame, name: str, dtype: pl.DataType, rows: int, scratch: Path) -> NumberSummary | Categories:
    return _numbers(frame, name, rows) if is_number(dtype) else _categories(frame, name, rows, scratch)


def _numbers(frame: pl.LazyFrame, name: str, rows: int) -> NumberSummary:
    """Takes tenths of every n-th row; counts all rows in these bins."""
    value = pl.col(name).cast(pl.Float64).fill_nan(None)
    every_nth = pl.col(_ROW) % max(1, rows // SAMPLED_ROWS) == 0
    few = frame.select(value).with_row_index(_ROW).filter(every_nth).drop_nulls().collect(engine="streaming")[name]
    edges = sorted({float(edge) for n in range(1, TENTHS) if (edge := few.quantile(n / TENTHS, "lower")) is not None})
    counts = counted(frame, name, tuple(edges))
    return NumberSummary(nulls=rows - sum(counts), edges=tuple(edges), counts=counts)


def _categories(frame: pl.LazyFrame, name: str, rows: int, scratch: Path) -> Categories:
    text = pl.col(name).cast(pl.String)
    nulls, different = frame.select(text.null_count(), text.approx_n_unique().alias("different")).collect(engine="streaming").row(0)
    top: list[tuple[str, int]] = []
    if different <= MOST_DISTINCT:
        short = frame.select(text.alias(KEY)).filter(pl.col(KEY).str.len_chars() <= LONGEST_VALUE)
        for counts in grouped(short, [pl.len().cast(pl.Int64).alias("rows")], scratch / "values"):
            top = sorted([*top, *counts.iter_rows()], key=lambda pair: (-pair[1], pair[0]))[:MOST_TOP]
    other = rows - int(nulls) - sum(count for _, count in top)
    return Categories(nulls=int(nulls), top=tuple(top), other=other)
