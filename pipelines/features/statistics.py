"""Statistics that operators need for a fit, and their merge over two batches.

Operators never read data: they name statistics. An engine computes equal ones once, and those of one level together. Sums are of whole
numbers (numbers are scaled), so that row order and threads change no bit, and new data adds to earlier results without reading again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.features.columns import Counted, Table

UNIT = 2**20
"""Targets are summed in units of 1/1,048,576."""
FINE = 2**30
"""Number of parts of the largest number, in which moments are summed."""


@dataclass(frozen=True)
class ValueCounts:
    """Count of each combination of values; with targets, also sums and counts of targets by fold."""

    keys: tuple[str, ...]
    table: Counted
    explode: bool = False
    targets: tuple[str, ...] = ()
    folds: int = 1


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared distances from the mean, minimum and maximum of a column."""

    column: str
    table: Table


@dataclass(frozen=True)
class Quantiles:
    column: str
    table: Table
    parts: int


@dataclass(frozen=True)
class LongestList:
    """Length of the longest list of a column."""

    column: str
    table: Counted


@dataclass(frozen=True)
class NewestValues:
    """Newest values of each key, oldest first."""

    of: str
    by: str
    count: int
    liked: bool = False
    pages: bool = False
    """Includes page views."""


Statistic = ValueCounts | Moments | Quantiles | LongestList | NewestValues
Results = Mapping[Statistic, Any]
"""Counts and Newest: a frame. Moments: a Summary. Quantiles: a tuple of bounds. Longest: a number."""


@dataclass(frozen=True)
class Summary:
    count: int
    mean: float
    squares: float
    """Sum of squared distances from the mean."""
    smallest: float
    largest: float

    @property
    def deviation(self) -> float:
        return (self.squares / self.count) ** 0.5 if self.count else 0.0

    def joined(self, other: Summary) -> Summary:
        """Merges two batches."""
        if not self.count or not other.count:
            return self if self.count else other
        count, apart = self.count + other.count, other.mean - self.mean
        mean = self.mean + apart * other.count / count
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        return Summary(count, mean, squares, min(self.smallest, other.smallest), max(self.largest, other.largest))


NONE = Summary(0, 0.0, 0.0, 0.0, 0.0)


def summed(keys: tuple[str, ...], frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Merges counts of several batches, sorted by key (and fold), so that the order depends only on the content."""
    merged = pl.concat(frames, how="diagonal") if len(frames) > 1 else frames[0]
    by = [*keys, *([FOLD] if FOLD in merged.columns else [])]
    numbers = [name for name in merged.columns if name not in by]
    return merged.group_by(by).agg(pl.col(numbers).sum()).sort(by)


FOLD = "fold"


def sum_of(target: str) -> str:
    return f"sum.{target}"


def rows_of(target: str) -> str:
    return f"rows.{target}"
