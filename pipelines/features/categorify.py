"""Categorify: one id or word a row becomes one code a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from pipelines.features.vocabulary import DType, Vocabulary, fit_vocabulary

Side = Literal["user", "item"]


@dataclass(frozen=True)
class CategorifyFeature:
    column: str
    side: Side
    dtype: DType
    min_count: int
    vocabulary: Vocabulary | None = None

    kind = "categorify"
    length = None

    @property
    def state(self) -> Vocabulary:
        if self.vocabulary is None:
            raise RuntimeError(f"the feature '{self.column}' is not fitted yet")
        return self.vocabulary

    def normalise(self) -> pl.Expr:
        """The raw column as it is kept and served."""
        return pl.col(self.column).cast(pl.Int64 if self.dtype == "int64" else pl.String)

    def fit(self, frame: pl.LazyFrame, known: CategorifyFeature | None = None) -> CategorifyFeature:
        grown = fit_vocabulary(frame.select(self.column), self.dtype, self.min_count, known.state if known else None)
        return replace(self, vocabulary=grown)

    def transform(self, source: pl.Expr | None = None) -> pl.Expr:
        return self.state.encode(pl.col(self.column) if source is None else source).alias(self.column)

    def lower(self, output: str) -> list[Any]:
        return self.state.lower(self.column, output)
