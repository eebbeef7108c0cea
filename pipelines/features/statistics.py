"""What operators ask of the data when they are fitted, and how answers of two batches become that of both.

An operator never reads data: it says which statistics it needs. Equal ones are computed once, those of one level together, by
whichever engine. Sums are of whole numbers (numbers are scaled to them), so that neither the order of rows nor the number of threads
changes a bit of the result; and they add up, so that new data is joined with what was counted before without reading that again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.features.columns import Counted, Table

UNIT = 2**20
"""Targets are summed in units of a 1,048,576th."""
FINE = 2**30
"""Moments are summed in so many parts of the largest number."""


@dataclass(frozen=True)
class Counts:
    """How often each combination of values is there; with targets, by fold, their sums and how many there are of them."""

    keys: tuple[str, ...]
    table: Counted
    explode: bool = False
    targets: tuple[str, ...] = ()
    folds: int = 1


@dataclass(frozen=True)
class Moments:
    """Of a column of numbers: how many there are, mean, sum of squared distances from it, smallest and largest."""

    column: str
    table: Table


@dataclass(frozen=True)
class Quantiles:
    column: str
    table: Table
    parts: int


@dataclass(frozen=True)
class Longest:
    """Of a column of lists."""

    column: str
    table: Counted


@dataclass(frozen=True)
class Newest:
    """The newest values of each key, the oldest of them first."""

    of: str
    by: str
    count: int
    liked: bool = False
    pages: bool = False
    """Views of pages too."""


Statistic = Counts | Moments | Quantiles | Longest | Newest
Results = Mapping[Statistic, Any]
"""Counts and Newest: a frame. Moments: a Summary. Quantiles: a tuple of bounds. Longest: a number."""


@dataclass(frozen=True)
class Summary:
    count: int
    mean: float
    squares: float
    """The sum of squared distances from the mean."""
    smallest: float
    largest: float

    @property
    def deviation(self) -> float:
        return (self.squares / self.count) ** 0.5 if self.count else 0.0

    def joined(self, other: Summary) -> Summary:
        """Of both batches."""
        if not self.count or not other.count:
            return self if self.count else other
        count, apart = self.count + other.count, other.mean - self.mean
        mean = self.mean + apart * other.count / count
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        return Summary(count, mean, squares, min(self.smallest, other.smallest), max(self.largest, other.largest))


NONE = Summary(0, 0.0, 0.0, 0.0, 0.0)


def summed(keys: tuple[str, ...], frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Counts of several batches as one, in the one order that depends on the content alone: most frequent first, then by value."""
    merged = pl.concat(frames, how="diagonal") if len(frames) > 1 else frames[0]
    by = [*keys, *([FOLD] if FOLD in merged.columns else [])]
    numbers = [name for name in merged.columns if name not in by]
    return merged.group_by(by).agg(pl.col(numbers).sum()).sort(by)


FOLD = "fold"


def sum_of(target: str) -> str:
    return f"sum.{target}"


def rows_of(target: str) -> str:
    return f"rows.{target}"
