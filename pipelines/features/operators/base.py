"""Operator protocol: a small frozen value with inputs, outputs, fitted state, and an implementation per runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self

import polars as pl

from pipelines.features.columns import Column, Kind, Side
from pipelines.features.lowering import Lowering
from pipelines.features.statistics import Results, Statistic

Mode = Literal["serve", "rows"]
"""`serve`: as in serving. `rows`: for training, where a row must not see itself (other folds, earlier times)."""
PREFIX = "features/"
RECENT, RECENT_LIST = "recent/items", "recent/list"
"""Inputs of models that read the user's recent items: their codes by distinct list, and the number of each row's list."""


@dataclass(frozen=True)
class Feature:
    """Fitted feature for models."""

    name: str
    kind: Literal["code", "float32"]
    side: Side
    width: int | None
    """Length of lists and vectors; None: one value per row."""
    cardinality: int | None = None
    """Number of codes."""

    value: str = ""
    """Name among the operators if the feature was changed in place."""

    @property
    def output(self) -> str:
        """Name in the served graph."""
        return output_name(self.name)

    @property
    def made(self) -> str:
        return self.value or self.output


@dataclass(frozen=True)
class SavedState:
    """Fitted state as neutral values: plain JSON, and frames that are saved as Parquet by name."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)


Made = Mapping[str, Feature]
"""Features made so far, by output name."""


class Operator(Protocol):
    kind: ClassVar[str]

    @property
    def inputs(self) -> tuple[Column, ...]: ...

    @property
    def outputs(self) -> tuple[Column, ...]: ...

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features of the outputs, after the fit."""

    def asks(self) -> tuple[Statistic, ...]:
        """Returns the statistics that the operator needs."""

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        """Returns the operator fitted on `results`; with `previous`, its earlier fit, `results` cover only new data."""

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        """Adds the outputs to the frame, by polars."""

    def lower(self, build: Lowering) -> None:
        """Adds the ONNX nodes."""

    def saved(self) -> SavedState: ...

    def restored(self, saved: SavedState, made: Made) -> Self: ...


class Stateless:
    """Base of operators without fitted state."""

    def asks(self) -> tuple[Statistic, ...]:
        return ()

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return self

    def saved(self) -> SavedState:
        return SavedState()

    def restored(self, saved: SavedState, made: Made) -> Self:
        return self


class Linked(ABC, Stateless):
    """Base of operators that depend only on fitted input features."""

    @abstractmethod
    def linked(self, made: Made) -> Self: ...

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return self.linked(made)

    def restored(self, saved: SavedState, made: Made) -> Self:
        return self.linked(made)


def output_name(name: str) -> str:
    return PREFIX + name


def made(name: str, kind: Kind, side: Side, many: bool = False) -> Column:
    """Returns a feature's column, as an input for other operators."""
    return Column(output_name(name), kind, side, many)


def plain(column: Column) -> str:
    """Returns the display name of a column or feature."""
    return column.name.removeprefix(PREFIX).split("~")[0]
