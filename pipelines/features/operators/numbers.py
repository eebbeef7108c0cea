"""Number operators: normalise, log, clip, fill, plain. Nulls stay null until filled; values are float32, as in serving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import polars as pl

from pipelines.features.columns import Column, Table, number
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, SavedState, Stateless, plain
from pipelines.features.statistics import NONE, Moments, Results, Statistic, Summary


@dataclass(frozen=True)
class OneNumber(Stateless):
    """Base: one number in, one out, under the same name."""

    source: Column
    output: Column
    table: Table
    """Table of the moments."""

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (self.output,)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(plain(self.output), "float32", self.output.side, None, value=self.output.name),)


@dataclass(frozen=True)
class Plain(OneNumber):
    """Unchanged number, for families that need no change (pipelines.features.reading)."""

    kind: ClassVar[str] = "number"

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        return frame.with_columns(number(self.source).alias(self.output.name))

    def lower(self, build: Lowering) -> None:
        build.gives(self.output.name, build.number(self.source))


@dataclass(frozen=True)
class Measured(OneNumber):
    """Base of operators that need a number's moments."""

    summary: Summary = NONE

    def asks(self) -> tuple[Statistic, ...]:
        return (Moments(self.source.name, self.table),)

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        summary = results[Moments(self.source.name, self.table)]
        return replace(self, summary=previous.summary.joined(summary) if previous else summary)

    def saved(self) -> SavedState:
        return SavedState(vars(self.summary))

    def restored(self, saved: SavedState, made: Made) -> Self:
        return replace(self, summary=Summary(**saved.facts))


@dataclass(frozen=True)
class Normalise(Measured):
    to: Literal["standard", "range"] = "standard"

    kind: ClassVar[str] = "normalise"

    @property
    def terms(self) -> tuple[np.float32, np.float32]:
        """The subtrahend and the divisor."""
        summary = self.summary
        away, by = (summary.mean, summary.deviation) if self.to == "standard" else (summary.smallest, summary.largest - summary.smallest)
        return np.float32(away), np.float32(by or 1.0)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        away, by = (pl.lit(float(term), pl.Float32) for term in self.terms)
        return frame.with_columns(((number(self.source) - away) / by).alias(self.output.name))

    def lower(self, build: Lowering) -> None:
        away, by = (build.constant(np.array(term)) for term in self.terms)
        build.gives(self.output.name, build.node("Div", build.node("Sub", build.number(self.source), away), by))


@dataclass(frozen=True)
class Log(OneNumber):
    kind: ClassVar[str] = "log"

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        wide = pl.max_horizontal(number(self.source), pl.lit(0.0, pl.Float32)).cast(pl.Float64) + 1.0
        log = pl.when(number(self.source).is_not_null()).then(wide.log())
        return frame.with_columns(log.cast(pl.Float32).alias(self.output.name))

    def lower(self, build: Lowering) -> None:
        value, zero = build.number(self.source), build.constant(np.array(0, np.float32))
        positive = build.node("Where", build.node("Less", value, zero), zero, value)
        wide = build.node("Add", build.cast(positive, "DOUBLE"), build.constant(np.array(1.0)))
        build.gives(self.output.name, build.cast(build.node("Log", wide), "FLOAT"))


@dataclass(frozen=True)
class Clip(OneNumber):
    low: float | None = None
    high: float | None = None

    kind: ClassVar[str] = "clip"

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        clipped = number(self.source)
        if self.low is not None:
            low = pl.lit(float(np.float32(self.low)), pl.Float32)
            clipped = pl.when(clipped < low).then(low).otherwise(clipped)
        if self.high is not None:
            high = pl.lit(float(np.float32(self.high)), pl.Float32)
            clipped = pl.when(clipped > high).then(high).otherwise(clipped)
        return frame.with_columns(clipped.alias(self.output.name))

    def lower(self, build: Lowering) -> None:
        value = build.number(self.source)
        for bound, compare in ((self.low, "Less"), (self.high, "Greater")):
            if bound is not None:
                edge = build.constant(np.array(bound, np.float32))
                value = build.node("Where", build.node(compare, value, edge), edge, value)
        build.gives(self.output.name, value)


@dataclass(frozen=True)
class Fill(Measured):
    by: float | Literal["mean"] = "mean"
    flag: Column | None = None

    kind: ClassVar[str] = "fill"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (self.output,) if self.flag is None else (self.output, self.flag)

    @property
    def features(self) -> tuple[Feature, ...]:
        return tuple(Feature(plain(output), "float32", output.side, None, value=output.name) for output in self.outputs)

    @property
    def value(self) -> np.float32:
        return np.float32(self.summary.mean if self.by == "mean" else self.by)

    def asks(self) -> tuple[Statistic, ...]:
        return super().asks() if self.by == "mean" else ()

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return super().fitted(results, previous, made) if self.by == "mean" else self

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        value = number(self.source)
        made = [value.fill_null(float(self.value)).cast(pl.Float32).alias(self.output.name)]
        if self.flag is not None:
            made.append(value.is_null().cast(pl.Float32).alias(self.flag.name))
        return frame.with_columns(made)

    def lower(self, build: Lowering) -> None:
        value = build.number(self.source)
        missing = build.node("IsNaN", value)
        build.gives(self.output.name, build.node("Where", missing, build.constant(np.array(self.value)), value))
        if self.flag is not None:
            build.gives(self.flag.name, build.cast(missing, "FLOAT"))
