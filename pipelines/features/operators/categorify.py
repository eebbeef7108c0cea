"""Categorify and multi-hot: ids and words to codes, one or several per row. Columns may share a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import polars as pl

from pipelines.features.columns import NULL, Column, Raw, Table
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, SavedState, made, output_name
from pipelines.features.statistics import LongestList, Results, Statistic, ValueCounts
from pipelines.features.vocabulary import EntryRule, Vocabulary, fit_vocabulary
from shared.domain.errors import Invalid


@dataclass(frozen=True)
class CountedVocabulary:
    """Vocabulary with the columns that are counted for it."""

    name: str
    columns: tuple[Raw, ...]
    rule: EntryRule
    tables: tuple[Table, ...]
    """Table of each column's counts."""
    pages: str | None = None
    """The item's key, if pages are among the values."""

    def asks(self) -> tuple[ValueCounts, ...]:
        counted = tuple(
            ValueCounts((column.name,), table, explode=column.many) for column, table in zip(self.columns, self.tables, strict=True)
        )
        return counted if self.pages is None else (*counted, ValueCounts((self.pages,), "pages"))

    def fitted(self, results: Results, previous: Vocabulary | None) -> Vocabulary:
        asks = self.asks()
        counted = [results[ask].rename({ask.keys[0]: "value"}) for ask in asks]
        merged = counted[0] if len(counted) == 1 else pl.concat(counted).group_by("value").agg(pl.col("count").sum())
        return fit_vocabulary(merged, self.columns[0].kind, self.rule, previous, self.pages is not None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class VocabularyOperator:
    """Base of both operators: a column, a vocabulary, and a feature with the column's name."""

    column: Raw
    words: CountedVocabulary
    vocabulary: Vocabulary | None = None

    @property
    def state(self) -> Vocabulary:
        if self.vocabulary is None:
            raise RuntimeError(f"the feature '{self.column.name}' is not fitted yet")
        return self.vocabulary

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.column.name, "code", self.column.side, many=self.column.many),)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.column.name, "code", self.column.side, self.column.width, self.state.cardinality),)

    def asks(self) -> tuple[Statistic, ...]:
        return self.words.asks()

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return replace(self, vocabulary=self.words.fitted(results, previous.vocabulary if previous else None))

    def lower(self, build: Lowering) -> None:
        build.gives(output_name(self.column.name), self.state.lower(build, self.column))

    def saved(self) -> SavedState:
        return saved_words(self.words, self.state)

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(self, vocabulary=restored_words(self.words, saved))


@dataclass(frozen=True)
class Categorify(VocabularyOperator):
    kind: ClassVar[str] = "categorify"

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        return encoded(frame, self.column.name, self.state, output_name(self.column.name))


@dataclass(frozen=True)
class MultiHot(VocabularyOperator):
    """Multi-hot; after the fit, its column has the number of values per row."""

    kind: ClassVar[str] = "multi_hot"

    @property
    def length(self) -> int | None:
        return self.column.width

    def _ask(self) -> LongestList:
        assert self.column.table is not None
        return LongestList(self.column.name, self.column.table)

    def asks(self) -> tuple[Statistic, ...]:
        return (*super().asks(), self._ask())

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        """A fit with `previous` never shortens rows."""
        assert self.column.max_length is not None
        longest = results[self._ask()] or 1
        length = min(self.column.max_length, max(longest, previous.length or 1 if previous else 1))
        return replace(super().fitted(results, previous, made), column=replace(self.column, width=length))

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        assert self.length is not None
        codes = padded(pl.col(self.column.name), self.state, self.length)
        return frame.with_columns(codes.alias(output_name(self.column.name)))

    def saved(self) -> SavedState:
        return SavedState({"length": self.length}, super().saved().frames)

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(super().restored(saved, made), column=replace(self.column, width=saved.facts["length"]))


def padded(lists: pl.Expr, vocabulary: Vocabulary, length: int) -> pl.Expr:
    """Encodes lists as fixed-length rows of codes, by batches: polars' list evaluation would hold the whole frame in memory."""
    dtype = pl.Array(pl.Int32, length)

    def rows(some: pl.Series) -> pl.Series:
        counts = some.list.len().fill_null(0).to_numpy()
        values = vocabulary.coded(some.explode(empty_as_null=False, keep_nulls=False))
        matrix = np.full((len(some), length), NULL, np.int32)
        if counts.max(initial=0) > length:
            starts = np.cumsum(counts) - counts
            keep = np.arange(len(values)) - np.repeat(starts, counts) < length
            values, counts = values[keep], np.minimum(counts, length)
        matrix[np.arange(length) < counts[:, None]] = values
        return pl.Series(matrix, dtype=dtype)

    return lists.map_batches(rows, dtype, is_elementwise=True)


def encoded(frame: pl.LazyFrame, column: str, vocabulary: Vocabulary, output: str) -> pl.LazyFrame:
    """Encodes by a join, whose cost doesn't depend on the number of batches."""
    if vocabulary.values.is_empty():
        return frame.with_columns(vocabulary.encode(pl.col(column)).alias(output))
    if vocabulary.dense is not None:
        blank = pl.lit(NULL, pl.Int32)
        return frame.with_columns(pl.when(pl.col(column).is_null()).then(blank).otherwise(vocabulary.dense.at(column)).alias(output))
    table = vocabulary.table.rename({"value": column, "code": output}).lazy()
    joined = frame.join(table, on=column, how="left", maintain_order="left")
    return joined.with_columns(vocabulary.finish(pl.col(column), pl.col(output)).alias(output))


def saved_words(words: CountedVocabulary, vocabulary: Vocabulary) -> SavedState:
    coded = pl.DataFrame({"value": vocabulary.values, "count": vocabulary.counts, "code": vocabulary.codes})
    frame = pl.concat([coded, vocabulary.waiting.with_columns(code=pl.lit(None, pl.Int32))])
    return SavedState({}, {f"vocabulary.{words.name}": frame})


def restored_words(words: CountedVocabulary, saved: SavedState) -> Vocabulary:
    frame = saved.frames[f"vocabulary.{words.name}"]
    if frame["value"].dtype != (pl.Int64 if words.columns[0].kind == "int64" else pl.String):
        raise Invalid(f"vocabulary.{words.name}.parquet: values of type {frame['value'].dtype} do not match the features")
    coded = frame.filter(pl.col("code").is_not_null())
    waiting = frame.filter(pl.col("code").is_null()).select("value", "count")
    return Vocabulary(words.columns[0].kind, coded["value"], coded["count"], waiting, words.rule.hash_buckets)  # type: ignore[arg-type]
