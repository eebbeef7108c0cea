"""Lag: the difference to an earlier interaction; in serving, to the newest interaction at the fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, Column, Raw
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, SavedState, made, plain
from pipelines.features.operators.keyed import gather, located, place
from pipelines.features.operators.ordered import VALUES, before_name, grown, in_order
from pipelines.features.statistics import NewestValues, Results, Statistic

_PLACE = "~place"


@dataclass(frozen=True)
class Lag:
    of: Column
    by: Raw
    steps: int
    row: tuple[str, str, str]
    newest: pl.DataFrame | None = None

    kind: ClassVar[str] = "lag"
    pages: ClassVar[bool] = False

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.of, self.by)

    @property
    def name(self) -> str:
        return f"{plain(self.of)}_lag" + (f"_{self.steps}" if self.steps > 1 else "")

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "float32", "context"),)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "float32", "context", None),)

    def _ask(self) -> NewestValues:
        return NewestValues(self.of.name, self.by.name, self.steps)

    def asks(self) -> tuple[Statistic, ...]:
        return (self._ask(),)

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return replace(self, newest=grown(previous.newest if previous else None, results[self._ask()], self.steps))

    @cached_property
    def last(self) -> tuple[pl.DataFrame, pl.Series]:
        """Keys with at least `steps` interactions, and their value `steps` back."""
        assert self.newest is not None
        enough = self.newest.filter(pl.col(VALUES).list.len() >= self.steps)
        values = enough[VALUES].list.get(-self.steps)
        there = values.is_not_null()
        return enough.filter(there).select(self.by.name), values.filter(there)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        output, value = self.outputs[0].name, pl.col(self.of.name)
        if mode == "rows":
            return frame.with_columns(pl.col(before_name(self.name)).fill_nan(None).alias(output))
        keys, values = self.last
        joined = located(frame, (self.by,), keys, _PLACE)
        last = pl.concat([values, values.clear(1)])
        dtype = last.dtype
        back = pl.col(_PLACE).map_batches(last.gather, dtype, is_elementwise=True)
        return joined.with_columns((value - back).cast(pl.Float32).alias(output)).drop(_PLACE)

    def before(self, rows: pl.Series) -> NDArray[np.float32]:
        """Returns the lag of each row, NaN without an earlier one. `rows`: all rows of some users, as a struct."""
        order, users = in_order(rows, self.row)
        values = rows.struct.field(self.of.name).gather(order)
        same = np.zeros(len(rows), bool)
        same[self.steps :] = users[self.steps :] == users[: max(0, len(users) - self.steps)]
        apart = (values - values.shift(self.steps)).cast(pl.Float32)
        differences = np.full(len(rows), np.nan, np.float32)
        differences[order] = np.where(same, apart.fill_null(float("nan")).to_numpy(), np.nan)
        return differences

    def lower(self, build: Lowering) -> None:
        keys, values = self.last
        rows = place(build, (self.by,), keys)
        table = np.append(values.to_numpy(), 0).astype(np.int64 if self.of.kind == "int64" else np.float32)
        self.lower_last(build, gather(build, rows, table), build.node("Equal", rows, build.constant(np.array(len(keys), np.int64))))

    def lower_last(self, build: Lowering, last: str, missing: str) -> None:
        """Adds the nodes for a given earlier value."""
        value = build.value(self.of)
        difference = build.node("Sub", value, last)
        if self.of.kind == "int64":
            missing = build.node("Or", missing, build.node("Equal", value, build.constant(np.array(BLANK["int64"], np.int64))))
            difference = build.cast(difference, "FLOAT")
        build.gives(self.outputs[0].name, build.node("Where", missing, build.constant(np.array(np.nan, np.float32)), difference))

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that `before` takes."""
        return tuple(dict.fromkeys((*self.row, self.of.name)))

    @property
    def shape(self) -> tuple[type[np.float32], tuple[int, ...]]:
        return np.float32, ()

    def saved(self) -> SavedState:
        assert self.newest is not None
        return SavedState({}, {f"newest.{self.name}": self.newest})

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(self, newest=saved.frames[f"newest.{self.name}"])
