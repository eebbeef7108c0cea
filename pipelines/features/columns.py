"""Columns of the data and of operators; everything but fitted state is known before data is read.

A raw column is prepared once, when its table is read: ids as int64, words as text, numbers as float32, times as whole seconds since 1970,
several values per row as a list. The served unit takes the same types. Nulls stay null; blank text and NaN become null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

Kind = Literal["int64", "string", "float32", "code"]
Side = Literal["user", "item", "context", "pair"]
"""What a value depends on: the user, the item, the interaction (with its user), or the interaction and an item."""
Table = Literal["interactions", "items", "users"]
Counted = Table | Literal["pages"]
"""Page views are counted, but have no columns for features."""

BLANK: dict[str, int | str] = {"int64": -(2**63), "string": ""}
"""Null and padding at the served unit; NaN for numbers."""
NULL, UNKNOWN, FIRST = 0, 1, 2
"""Codes: null or padding, out of vocabulary, first known value."""
_TYPES = {"int64": pl.Int64(), "string": pl.String(), "float32": pl.Float32(), "code": pl.Int32()}
MENTIONS, HASHTAGS = r"@(\w+)", r"#(\w+)"


@dataclass(frozen=True)
class Column:
    """Input value of an operator: raw, or made by another operator."""

    name: str
    kind: Kind
    side: Side
    many: bool = False
    """True for several values per row."""
    table: Table | None = None
    """Table of a raw column."""


@dataclass(frozen=True)
class Raw(Column):
    """Column of the data with its preparation."""

    separator: str | None = None
    max_length: int | None = None
    """Limit of list length; further values are dropped."""
    width: int | None = None
    """List length at the served unit, known after the fit."""
    pattern: str | None = None
    """Pattern to extract from text, as a list."""
    source: str | None = None
    """Name in the data, if different."""
    time: bool = False

    def prepared(self, dtype: pl.DataType) -> pl.Expr:
        """Returns the prepared column; `dtype` is its type in the table."""
        column = pl.col(self.source or self.name)
        if self.time:
            return _seconds(column, dtype).alias(self.name)
        if self.pattern is not None:
            matches = column.cast(pl.String).str.to_lowercase().str.extract_all(self.pattern)
            return self._listed(matches.list.eval(pl.element().str.extract(self.pattern, _group(self.pattern)))).alias(self.name)
        if self.many:
            return self._listed(column.cast(pl.String).str.split(self.separator) if self.separator else column).alias(self.name)
        typed = column.cast(polars_type(self.kind))
        value = (
            pl.when(typed != pl.lit(BLANK[self.kind], polars_type(self.kind))).then(typed) if self.kind in BLANK else typed.fill_nan(None)
        )
        return value.alias(self.name)

    def _listed(self, lists: pl.Expr) -> pl.Expr:
        typed = lists.cast(pl.List(polars_type(self.kind)))
        if self.kind == "float32":
            return typed
        return typed.map_batches(self._without_blanks, pl.List(polars_type(self.kind)), is_elementwise=True)

    def _without_blanks(self, lists: pl.Series) -> pl.Series:
        """Drops blanks, batch by batch: polars' list evaluation would hold the whole frame in memory."""
        values = lists.explode(empty_as_null=False, keep_nulls=False)
        column = pl.col(lists.name)
        if values.null_count() or (values == BLANK[self.kind]).any():
            column = column.list.eval(pl.element().filter(pl.element().is_not_null() & (pl.element() != BLANK[self.kind])))
        limited = column if self.max_length is None else column.list.head(self.max_length)
        return lists.to_frame().select(limited.fill_null([])).to_series()


def polars_type(kind: Kind) -> pl.DataType:
    return _TYPES[kind]


def number(column: Column) -> pl.Expr:
    """Casts to float32, the served unit's precision."""
    return pl.col(column.name).cast(pl.Float32).fill_nan(None)


def joined_side(sides: set[Side]) -> Side:
    """Returns the side of a value made of several sides."""
    if len(sides) == 1:
        return next(iter(sides))
    return "pair" if sides & {"item", "pair"} else "context"


def _group(pattern: str) -> int:
    import re

    return 1 if re.compile(pattern).groups else 0


def _seconds(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime | pl.Date):
        return column.cast(pl.Datetime("us")).dt.epoch("us").floordiv(1_000_000).cast(pl.Int64)
    return column.floor().cast(pl.Int64) if dtype.is_float() else column.cast(pl.Int64)
