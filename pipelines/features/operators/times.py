"""Time operators: place in a day, week or year as sine and cosine; hour and weekday as codes. Whole seconds since 1970, UTC."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, FIRST, NULL, Column
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Mode, Stateless, made, plain

Period = Literal["day", "week", "year"]
Part = Literal["hour", "weekday"]
DAY = 86_400
PERIODS: dict[Period, tuple[int, int]] = {"day": (DAY, 0), "week": (7 * DAY, 3 * DAY), "year": (31_556_952, 0)}
"""Seconds, and an offset: 1970 began on a Thursday, weeks begin on Mondays."""
PARTS: dict[Part, tuple[int, int, int]] = {"hour": (DAY, 0, 3600), "weekday": (7 * DAY, 3 * DAY, DAY)}
"""As above, and the seconds of one code."""


@dataclass(frozen=True)
class OfTime(Stateless):
    column: Column

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    def _within(self, seconds: int, added: int) -> pl.Expr:
        return (pl.col(self.column.name) % seconds + added) % seconds

    def _lowered(self, build: Lowering, seconds: int, added: int) -> str:
        by = build.constant(np.array(seconds, np.int64))
        within = build.node("Mod", build.value(self.column), by)
        return build.node("Mod", build.node("Add", within, build.constant(np.array(added, np.int64))), by) if added else within

    def _blank(self, build: Lowering) -> str:
        return build.node("Equal", build.value(self.column), build.constant(np.array(BLANK["int64"], np.int64)))


@dataclass(frozen=True)
class _CyclicTable:
    """Wave of seconds within a period; day and week are short enough for a table."""

    period: Period
    wave: Literal["sin", "cos"]

    def __call__(self, within: pl.Series) -> pl.Series:
        seconds = within.fill_null(0).to_numpy()
        tabled = PERIODS[self.period][0] <= _TABLED < 4 * len(seconds)
        waves = _table(self.period, self.wave)[seconds] if tabled else _waves(self.period, self.wave, seconds)
        return pl.Series(waves).set(within.is_null(), None) if within.null_count() else pl.Series(waves)


_TABLED = 7 * DAY


@functools.cache
def _table(period: Period, wave: str) -> NDArray[np.float32]:
    return _waves(period, wave, np.arange(PERIODS[period][0]))


def _waves(period: Period, wave: str, seconds: NDArray[np.int64]) -> NDArray[np.float32]:
    angle = seconds * (2 * np.pi / PERIODS[period][0])
    values: NDArray[np.float32] = (np.sin(angle) if wave == "sin" else np.cos(angle)).astype(np.float32)
    return values


@dataclass(frozen=True)
class Cyclic(OfTime):
    periods: tuple[Period, ...]

    kind: ClassVar[str] = "cyclic"

    @property
    def outputs(self) -> tuple[Column, ...]:
        stem, side = plain(self.column), self.column.side
        return tuple(made(f"{stem}_{period}_{wave}", "float32", side) for period in self.periods for wave in ("sin", "cos"))

    @property
    def features(self) -> tuple[Feature, ...]:
        return tuple(Feature(plain(output), "float32", output.side, None) for output in self.outputs)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        made, names = [], iter(output.name for output in self.outputs)
        for period in self.periods:
            seconds, added = PERIODS[period]
            within = self._within(seconds, added)
            waves = (_CyclicTable(period, "sin"), _CyclicTable(period, "cos"))
            made += [within.map_batches(wave, pl.Float32, is_elementwise=True).alias(next(names)) for wave in waves]
        return frame.with_columns(made)

    def lower(self, build: Lowering) -> None:
        names, blank, nan = iter(output.name for output in self.outputs), self._blank(build), build.constant(np.array(np.nan, np.float32))
        for period in self.periods:
            seconds, added = PERIODS[period]
            within = build.cast(self._lowered(build, seconds, added), "DOUBLE")
            angle = build.node("Mul", within, build.constant(np.array(2 * np.pi / seconds)))
            for wave in ("Sin", "Cos"):
                build.gives(next(names), build.node("Where", blank, nan, build.cast(build.node(wave, angle), "FLOAT")))


@dataclass(frozen=True)
class Calendar(OfTime):
    parts: tuple[Part, ...]

    kind: ClassVar[str] = "calendar"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return tuple(made(part, "code", self.column.side) for part in self.parts)

    @property
    def features(self) -> tuple[Feature, ...]:
        sizes = {part: FIRST + seconds // of for part, (seconds, _, of) in PARTS.items()}
        return tuple(Feature(part, "code", self.column.side, None, sizes[part]) for part in self.parts)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        made = []
        for part, output in zip(self.parts, self.outputs, strict=True):
            seconds, added, of = PARTS[part]
            code = (self._within(seconds, added) // of + FIRST).cast(pl.Int32)
            made.append(code.fill_null(NULL).alias(output.name))
        return frame.with_columns(made)

    def lower(self, build: Lowering) -> None:
        blank, null = self._blank(build), build.constant(np.array(NULL, np.int64))
        for part, output in zip(self.parts, self.outputs, strict=True):
            seconds, added, of = PARTS[part]
            place = build.node("Div", self._lowered(build, seconds, added), build.constant(np.array(of, np.int64)))
            code = build.node("Add", place, build.constant(np.array(FIRST, np.int64)))
            build.gives(output.name, build.cast(build.node("Where", blank, null, code), "INT32"))
