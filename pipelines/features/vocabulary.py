"""Fitted vocabulary: codes of ids, equal in every runtime.

Codes: 0 is null or padding, 1 is out of vocabulary, from 2 on known values, most frequent first, ties by value; then hash buckets, if any.
The file is Parquet; its bytes depend only on the content. A vocabulary grows without moving codes: new values follow, rare values wait with
their counts. With buckets a vocabulary can't grow: later codes would move. Pages follow the items, and the rule applies to each separately,
so pages don't change the codes of items.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, FIRST, NULL, UNKNOWN, Column, polars_type
from pipelines.features.dense import DenseMap, dense
from pipelines.features.hashing import hashed
from pipelines.features.lowering import Lowering
from shared.domain.pages import PAGES

DType = Literal["int64", "string"]
_IS_PAGE = pl.col("value").is_between(PAGES.start, PAGES.stop - 1)
__all__ = ["BLANK", "FIRST", "NULL", "UNKNOWN", "DType", "EntryRule", "Vocabulary", "fit_vocabulary"]


@dataclass(frozen=True)
class EntryRule:
    """Rule for entering a vocabulary."""

    min_count: int = 1
    max_size: int | None = None
    hash_buckets: int | None = None
    values: tuple[int | str, ...] | None = None
    """Explicit values, if the spec lists them."""


@dataclass(frozen=True)
class Vocabulary:
    """Values in the order of their codes, with counts; `waiting` (value, count) has values without a code yet."""

    dtype: DType
    values: pl.Series
    counts: pl.Series
    waiting: pl.DataFrame
    buckets: int | None = None

    @property
    def cardinality(self) -> int:
        return FIRST + len(self.values) + (self.buckets or 0)

    @cached_property
    def codes(self) -> pl.Series:
        return pl.int_range(FIRST, FIRST + len(self.values), dtype=pl.Int32, eager=True)

    @property
    def table(self) -> pl.DataFrame:
        """Table for joins: value, code."""
        return pl.DataFrame({"value": self.values, "code": self.codes})

    def unknown(self, source: pl.Expr) -> pl.Expr:
        """Returns the code of unknown values; `source` isn't null."""
        if self.buckets is None:
            return pl.lit(UNKNOWN, pl.Int32)
        bucket: pl.Expr = hashed([source], self.buckets).cast(pl.Int32) + (FIRST + len(self.values))
        return bucket

    def finish(self, source: pl.Expr, code: pl.Expr) -> pl.Expr:
        """Completes the codes; `code` is null for unknown values."""
        return pl.when(source.is_null()).then(pl.lit(NULL, pl.Int32)).when(code.is_null()).then(self.unknown(source)).otherwise(code)

    def encode(self, source: pl.Expr) -> pl.Expr:
        """Encodes without a join, for small tables and lists."""
        if self.values.is_empty():
            return pl.when(source.is_null()).then(pl.lit(NULL, pl.Int32)).otherwise(self.unknown(source))
        return self.finish(source, source.replace_strict(self.values, self.codes, default=None, return_dtype=pl.Int32))

    def coded(self, values: pl.Series) -> NDArray[np.int32]:
        """Encodes a series, by a lookup table if there is one."""
        if self.dense is not None:
            codes = pl.Series(self.dense.of(values))
        elif self.dtype == "string" and len(self.values):
            codes = (values.cast(self._words, strict=False).to_physical().cast(pl.Int32) + FIRST).fill_null(UNKNOWN)
        else:
            return values.to_frame("value").select(self.encode(pl.col("value"))).to_series().to_numpy()
        return codes.set(values.is_null(), NULL).to_numpy() if values.null_count() else codes.to_numpy()

    @cached_property
    def dense(self) -> DenseMap | None:
        return dense(self.values, self.codes.to_numpy(), UNKNOWN) if self.buckets is None else None

    @cached_property
    def _words(self) -> pl.Enum:
        return pl.Enum(self.values)

    def lower(self, build: Lowering, column: Column) -> str:
        """Returns int32 codes."""
        if self.buckets is None:
            return build.cast(build.look_up(column, self.values, FIRST, NULL, UNKNOWN), "INT32")
        codes = build.look_up(column, self.values, FIRST, NULL, -1)
        unknown = build.node("Equal", codes, build.constant(np.array(-1, np.int64)))
        return build.cast(build.node("Where", unknown, self.lower_unknown(build, column), codes), "INT32")

    def lower_unknown(self, build: Lowering, column: Column) -> str:
        """Returns the int64 bucket code of each value."""
        assert self.buckets is not None
        start = build.constant(np.array(FIRST + len(self.values), np.int64))
        return build.node("Add", build.hashed([build.value(column)], self.buckets), start)


def fit_vocabulary(
    counted: pl.DataFrame, dtype: DType, rule: EntryRule, previous: Vocabulary | None = None, pages: bool = False
) -> Vocabulary:
    """Fits on (value, count) in any order; grows `previous`. `pages`: page keys are among the values."""
    if rule.values is not None:
        return _listed(rule.values, counted, dtype, rule, previous)
    if previous is None:
        empty = pl.DataFrame(schema={"value": polars_type(dtype), "count": pl.Int64})
        chosen, waiting = _chosen(counted, rule, empty, pages)
        return _vocabulary(dtype, [empty, chosen], waiting, rule)
    old = pl.DataFrame({"value": previous.values, "count": previous.counts})
    more = counted.rename({"count": "more"})
    grown = old.join(more, on="value", how="left", maintain_order="left").select("value", pl.col("count") + pl.col("more").fill_null(0))
    others = pl.concat([previous.waiting, counted.join(old, on="value", how="anti")]).group_by("value").agg(pl.col("count").sum())
    if rule.hash_buckets is not None:
        return _vocabulary(dtype, [grown], _ordered(others), rule)
    chosen, waiting = _chosen(others, rule, old, pages)
    return _vocabulary(dtype, [grown, chosen], waiting, rule)


def _listed(values: tuple[int | str, ...], counted: pl.DataFrame, dtype: DType, rule: EntryRule, previous: Vocabulary | None) -> Vocabulary:
    """Returns the listed values in their order, whatever their counts; no values wait."""
    listed = pl.DataFrame({"value": pl.Series(values, dtype=polars_type(dtype))})
    both = [counted.select("value", pl.col("count").cast(pl.Int64))]
    if previous is not None:
        both.append(pl.DataFrame({"value": previous.values, "count": previous.counts}))
    counts = pl.concat(both).group_by("value").agg(pl.col("count").sum())
    chosen = listed.join(counts, on="value", how="left", maintain_order="left").with_columns(pl.col("count").fill_null(0))
    return _vocabulary(dtype, [chosen], counts.clear(), rule)


def _chosen(counted: pl.DataFrame, rule: EntryRule, old: pl.DataFrame, pages: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns new values with a code, and waiting ones."""
    if pages:
        parts = [_chosen(counted.filter(condition), rule, old.filter(condition), False) for condition in (~_IS_PAGE, _IS_PAGE)]
        return pl.concat(chosen for chosen, _ in parts), pl.concat(waiting for _, waiting in parts)
    ordered = _ordered(counted)
    room = len(ordered) if rule.max_size is None else max(0, rule.max_size - len(old))
    size = min(int((ordered["count"] >= rule.min_count).sum()), room)
    return ordered[:size], ordered[size:]


def _ordered(counted: pl.DataFrame) -> pl.DataFrame:
    return counted.select("value", pl.col("count").cast(pl.Int64)).sort(["count", "value"], descending=[True, False])


def _vocabulary(dtype: DType, frames: list[pl.DataFrame], waiting: pl.DataFrame, rule: EntryRule) -> Vocabulary:
    merged = pl.concat(frames)
    return Vocabulary(dtype, merged["value"], merged["count"], waiting, rule.hash_buckets)
