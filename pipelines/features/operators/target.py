"""Target encoding and count encoding: the mean target, and the number, of a value's rows.

In training a row is encoded by the rows of other folds, so that it never sees its own target. A fold is a hash of the row's user, item and
time: equal in every engine, order and batch. Sums are stored by fold, so that new rows add up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import Column, joined_side
from pipelines.features.hashing import hashed
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, SavedState, made, plain
from pipelines.features.operators.keyed import gather, located, place, take_rows
from pipelines.features.statistics import FOLD, UNIT, Results, Statistic, ValueCounts, rows_of, sum_of, summed

Floats = NDArray[np.float64]


def fold_of(row: tuple[str, ...], folds: int) -> pl.Expr:
    """Returns a row's fold by its identifying columns."""
    fold: pl.Expr = hashed([pl.col(name).fill_null(0) for name in row], folds).cast(pl.Int8)
    return fold


@dataclass(frozen=True)
class TargetEncode:
    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    folds: int
    smoothing: float
    row: tuple[str, ...]
    """Columns of the row's fold."""
    sums: pl.DataFrame | None = None
    """By key and fold: number of rows, and each target's sum and count."""

    kind: ClassVar[str] = "target_encode"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return self.columns

    @property
    def names(self) -> tuple[str, ...]:
        stem = "_".join(plain(column) for column in self.columns)
        return (f"{stem}_te",) if len(self.targets) == 1 else tuple(f"{stem}_te_{target}" for target in self.targets)

    @property
    def outputs(self) -> tuple[Column, ...]:
        side = joined_side({column.side for column in self.columns})
        return tuple(made(name, "float32", side) for name in self.names)

    @property
    def features(self) -> tuple[Feature, ...]:
        return tuple(Feature(plain(output), "float32", output.side, None) for output in self.outputs)

    def _ask(self) -> ValueCounts:
        return ValueCounts(tuple(column.name for column in self.columns), "interactions", targets=self.targets, folds=self.folds)

    def asks(self) -> tuple[Statistic, ...]:
        return (self._ask(),)

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        sums = results[self._ask()]
        keys = tuple(column.name for column in self.columns)
        return replace(self, sums=summed(keys, [sums] if previous is None or previous.sums is None else [previous.sums, sums]))

    @cached_property
    def table(self) -> tuple[pl.DataFrame, dict[str, tuple[Floats, Floats]]]:
        """The keys in order; for each target the encodings [keys + 1] of all rows, and [keys + 1, folds] without each fold. The last row is
        for missing keys: the mean."""
        assert self.sums is not None
        names = [column.name for column in self.columns]
        keys = self.sums.select(names).unique(maintain_order=True)
        places = self.sums.select(names).join(keys.with_row_index("place"), on=names, how="left", maintain_order="left")["place"]
        rows, folds = places.to_numpy(), self.sums[FOLD].to_numpy().astype(np.int64)
        return keys, {target: self._encodings(target, rows, folds, len(keys)) for target in self.targets}

    def _encodings(self, target: str, rows: NDArray[np.uint32], folds: NDArray[np.int64], count: int) -> tuple[Floats, Floats]:
        assert self.sums is not None
        total, row_counts = np.zeros((count + 1, self.folds), np.int64), np.zeros((count + 1, self.folds), np.int64)
        total[rows, folds] = self.sums[sum_of(target)].to_numpy()
        row_counts[rows, folds] = self.sums[rows_of(target)].to_numpy()
        by_fold, n_by_fold = total.sum(axis=0), row_counts.sum(axis=0)
        others, n_others = by_fold.sum() - by_fold, n_by_fold.sum() - n_by_fold
        overall = _mean(total.sum(axis=1), row_counts.sum(axis=1), by_fold.sum(), n_by_fold.sum(), self.smoothing)
        apart = _mean(
            total.sum(axis=1, keepdims=True) - total, row_counts.sum(axis=1, keepdims=True) - row_counts, others, n_others, self.smoothing
        )
        return overall, apart

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        keys, encodings = self.table
        names = dict(zip(self.targets, (output.name for output in self.outputs), strict=True))
        joined = located(frame, self.columns, keys, _PLACE)
        if mode == "serve":
            made = [take_rows(_PLACE, overall.astype(np.float32)).alias(names[target]) for target, (overall, _) in encodings.items()]
        else:
            joined = joined.with_columns(pl.col(_PLACE).cast(pl.Int64) * self.folds + fold_of(self.row, self.folds))
            made = [take_rows(_PLACE, apart.astype(np.float32).ravel()).alias(names[target]) for target, (_, apart) in encodings.items()]
        return joined.with_columns(made).drop(_PLACE)

    def by_fold(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Adds `OUTPUT@folds` for each output: its value without each fold. For tables of users or items."""
        keys, encodings = self.table
        joined, place = located(frame, self.columns, keys, _PLACE), pl.col(_PLACE)
        made = []
        for output, target in zip(self.outputs, self.targets, strict=True):
            apart = encodings[target][1].astype(np.float32)

            def rows(places: pl.Series, apart: NDArray[np.float32] = apart) -> pl.Series:
                return pl.Series(apart[places.to_numpy()], dtype=pl.Array(pl.Float32, self.folds))

            made.append(place.map_batches(rows, pl.Array(pl.Float32, self.folds), is_elementwise=True).alias(f"{output.name}@folds"))
        return joined.with_columns(made).drop(_PLACE)

    def lower(self, build: Lowering) -> None:
        keys, encodings = self.table
        rows = place(build, self.columns, keys)
        for output, target in zip(self.outputs, self.targets, strict=True):
            build.gives(output.name, gather(build, rows, encodings[target][0].astype(np.float32)))

    def saved(self) -> SavedState:
        assert self.sums is not None
        return SavedState({}, {f"target.{self.names[0]}": self.sums})

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(self, sums=saved.frames[f"target.{self.names[0]}"])


_PLACE = "~place"


def _mean(
    total: NDArray[np.int64], row_counts: NDArray[np.int64], grand_total: NDArray[np.int64], rows: NDArray[np.int64], smoothing: float
) -> Floats:
    prior = np.divide(grand_total / UNIT, rows, out=np.zeros(np.shape(rows)), where=rows > 0)
    weight = row_counts + smoothing
    means: Floats = np.divide(
        total / UNIT + smoothing * prior, weight, out=np.broadcast_to(prior, np.shape(weight)).copy(), where=weight > 0
    )
    return means


@dataclass(frozen=True)
class CountEncode:
    column: Column
    scale: Literal["none", "log", "share"]
    counts: pl.DataFrame | None = None

    kind: ClassVar[str] = "count_encode"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def name(self) -> str:
        return f"{plain(self.column)}_count"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "float32", self.column.side),)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "float32", self.column.side, None),)

    def _ask(self) -> ValueCounts:
        return ValueCounts((self.column.name,), "interactions")

    def asks(self) -> tuple[Statistic, ...]:
        return (self._ask(),)

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        counts = results[self._ask()]
        both = [counts] if previous is None or previous.counts is None else [previous.counts, counts]
        return replace(self, counts=summed((self.column.name,), both))

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """[keys + 1]: the last is for missing keys."""
        assert self.counts is not None
        counts = np.append(self.counts["count"].to_numpy(), 0).astype(np.float64)
        scaled = {"none": counts, "log": np.log1p(counts), "share": counts / max(counts.sum(), 1.0)}[self.scale]
        encoded: NDArray[np.float32] = scaled.astype(np.float32)
        return encoded

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        assert self.counts is not None
        joined = located(frame, (self.column,), self.counts.select(self.column.name), _PLACE)
        return joined.with_columns(take_rows(_PLACE, self.values).alias(self.outputs[0].name)).drop(_PLACE)

    def lower(self, build: Lowering) -> None:
        assert self.counts is not None
        rows = place(build, (self.column,), self.counts.select(self.column.name))
        build.gives(self.outputs[0].name, gather(build, rows, self.values))

    def saved(self) -> SavedState:
        assert self.counts is not None
        return SavedState({}, {f"count.{self.name}": self.counts})

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(self, counts=saved.frames[f"count.{self.name}"])
