"""What an operator is: a small frozen value that says what it takes, gives and has to know, and how each runtime does it."""

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
"""`serve`: as it is served. `rows`: for training, where a row must not see itself: out of its fold, and before its time."""
PREFIX = "features/"


@dataclass(frozen=True)
class Feature:
    """What a model gets, once fitted."""

    name: str
    kind: Literal["code", "float32"]
    side: Side
    width: int | None
    """Of lists and vectors; None: one value a row."""
    cardinality: int | None = None
    """Of codes."""

    value: str = ""
    """What it is called among the operators, where that isn't its name: it was changed in place."""

    @property
    def output(self) -> str:
        """Of the served graph."""
        return output_name(self.name)

    @property
    def made(self) -> str:
        return self.value or self.output


@dataclass(frozen=True)
class Saved:
    """Fitted state as neutral values: plain JSON, and frames that become Parquet by their names."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)


Made = Mapping[str, Feature]
"""The features made so far, by the names of their outputs."""


class Operator(Protocol):
    kind: ClassVar[str]

    @property
    def inputs(self) -> tuple[Column, ...]: ...

    @property
    def outputs(self) -> tuple[Column, ...]: ...

    @property
    def features(self) -> tuple[Feature, ...]:
        """Of its outputs, once fitted."""

    def asks(self) -> tuple[Statistic, ...]:
        """What has to be known of the data before it can work."""

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        """With what was asked for; `previous` is itself as it was fitted before: then `results` are of new data alone."""

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        """By polars: the frame with its outputs."""

    def lower(self, build: Lowering) -> None:
        """By ONNX."""

    def saved(self) -> Saved: ...

    def restored(self, saved: Saved, made: Made) -> Self: ...


class Stateless:
    """Of an operator that has to know nothing of the data."""

    def asks(self) -> tuple[Statistic, ...]:
        return ()

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return self

    def saved(self) -> Saved:
        return Saved()

    def restored(self, saved: Saved, made: Made) -> Self:
        return self


class Linked(ABC, Stateless):
    """Of one that has to know of the features that it takes alone."""

    @abstractmethod
    def linked(self, made: Made) -> Self: ...

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        return self.linked(made)

    def restored(self, saved: Saved, made: Made) -> Self:
        return self.linked(made)


def output_name(name: str) -> str:
    return PREFIX + name


def made(name: str, kind: Kind, side: Side, many: bool = False) -> Column:
    """A feature as a value that other operators may take."""
    return Column(output_name(name), kind, side, many)


def plain(column: Column) -> str:
    """The name of a column or of a feature, as people say it."""
    return column.name.removeprefix(PREFIX).split("~")[0]
