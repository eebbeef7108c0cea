"""Multi-hot: several values a row become a row of codes, padded with 0 to the longest row that was fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from pipelines.features.categorify import Side
from pipelines.features.vocabulary import BLANK, NULL, DType, Vocabulary, fit_vocabulary, polars_type


@dataclass(frozen=True)
class MultiHotFeature:
    column: str
    side: Side
    dtype: DType
    min_count: int
    max_length: int
    separator: str | None
    length: int | None = None
    vocabulary: Vocabulary | None = None

    kind = "multi_hot"

    @property
    def state(self) -> Vocabulary:
        if self.vocabulary is None:
            raise RuntimeError(f"the feature '{self.column}' is not fitted yet")
        return self.vocabulary

    def normalise(self) -> pl.Expr:
        """Text or lists to lists without blanks, at most `max_length` long; a null becomes an empty list."""
        column = pl.col(self.column)
        lists = column.cast(pl.String).str.split(self.separator) if self.separator else column
        typed = lists.cast(pl.List(polars_type(self.dtype)))
        kept = typed.list.eval(pl.element().filter(pl.element().is_not_null() & (pl.element() != BLANK[self.dtype])))
        return kept.list.head(self.max_length).fill_null([]).alias(self.column)

    def fit(self, frame: pl.LazyFrame, known: MultiHotFeature | None = None) -> MultiHotFeature:
        """Fits normalised lists; grown, a row is at least as long as before."""
        values = frame.select(pl.col(self.column).explode())
        grown = fit_vocabulary(values, self.dtype, self.min_count, known.state if known else None)
        longest = frame.select(pl.col(self.column).list.len().max()).collect().item() or 1
        length = min(self.max_length, max(longest, known.length or 1 if known else 1))
        return replace(self, vocabulary=grown, length=length)

    def transform(self, source: pl.Expr | None = None) -> pl.Expr:
        if self.length is None:
            raise RuntimeError(f"the feature '{self.column}' is not fitted yet")
        lists = pl.col(self.column) if source is None else source
        codes = lists.list.eval(self.state.encode(pl.element()))
        padding = pl.lit([NULL] * self.length, dtype=pl.List(pl.Int32))
        return pl.concat_list(codes, padding).list.head(self.length).list.to_array(self.length).alias(self.column)

    def lower(self, output: str) -> list[Any]:
        return self.state.lower(self.column, output)
