"""Bucketise: numbers to codes by bounds from the spec or from the first fit; codes never change their meaning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import polars as pl

from pipelines.features.columns import NULL, Column, Table, number
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, SavedState, made, plain
from pipelines.features.statistics import Quantiles, Results, Statistic


@dataclass(frozen=True)
class Bucketise:
    source: Column
    table: Table
    at: tuple[float, ...] | None
    parts: int | None = None

    kind: ClassVar[str] = "bucketise"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.source,)

    @property
    def name(self) -> str:
        return f"{plain(self.source)}_bucket"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "code", self.source.side),)

    @property
    def bounds(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        assert self.at is not None
        return np.unique(np.array(self.at, np.float32))

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "code", self.source.side, None, len(self.bounds) + 2),)

    def asks(self) -> tuple[Statistic, ...]:
        return () if self.parts is None else (Quantiles(self.source.name, self.table, self.parts),)

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        if self.parts is None:
            return self
        return previous or replace(self, at=results[Quantiles(self.source.name, self.table, self.parts)])

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        bounds = self.bounds

        def codes(values: pl.Series) -> pl.Series:
            places = np.searchsorted(bounds, values.fill_null(0.0).to_numpy(), side="right").astype(np.int32) + 1
            return pl.Series(values.name, np.where(values.is_null().to_numpy(), np.int32(NULL), places))

        coded = number(self.source).map_batches(codes, pl.Int32, is_elementwise=True)
        return frame.with_columns(coded.alias(self.outputs[0].name))

    def lower(self, build: Lowering) -> None:
        value = build.number(self.source)
        column = build.node("Unsqueeze", value, build.constant(np.array([1], np.int64)))
        reached = build.cast(build.node("GreaterOrEqual", column, build.constant(self.bounds[None, :])), "INT64")
        count = build.node("ReduceSum", reached, build.constant(np.array([1], np.int64)), keepdims=0)
        code = build.node("Add", count, build.constant(np.array(1, np.int64)))
        blank = build.node("Where", build.node("IsNaN", value), build.constant(np.array(NULL, np.int64)), code)
        build.gives(self.outputs[0].name, build.cast(blank, "INT32"))

    def saved(self) -> SavedState:
        return SavedState({"at": self.at})

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(self, at=tuple(saved.facts["at"]))
