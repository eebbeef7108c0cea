"""The default engine: polars, streaming. Its memory doesn't depend on how many rows there are, but on how many values columns have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.features.engines.history import History
from pipelines.features.operators.ordered import VALUES
from pipelines.features.operators.target import fold_of
from pipelines.features.statistics import (
    FINE,
    FOLD,
    NONE,
    UNIT,
    Counts,
    Longest,
    Moments,
    Newest,
    Quantiles,
    Results,
    Statistic,
    Summary,
    rows_of,
    sum_of,
)


@dataclass(frozen=True)
class Data:
    """Prepared tables: what operators are fitted on. `interactions` has the columns of the others as well, where they are asked for."""

    interactions: pl.LazyFrame
    items: pl.LazyFrame | None
    users: pl.LazyFrame | None
    row: tuple[str, str, str]
    """User, item, time: what tells one row from another, and orders those of a user."""
    history: History | None = None
    """What came before each row, where something asks for it."""
    pages: pl.LazyFrame | None = None
    """Views of pages that are counted: under the item's name, the keys of pages. None: there are none."""

    def table(self, name: str) -> pl.LazyFrame:
        if name == "pages":
            return self.interactions.clear() if self.pages is None else self.pages
        frame = {"interactions": self.interactions, "items": self.items, "users": self.users}[name]
        assert frame is not None
        return frame


def compute(asks: Sequence[Statistic], data: Data) -> Results:
    """All of them, those that can be in one pass."""
    distinct = list(dict.fromkeys(asks))
    plans = _Plans(data)
    results = plans.collect(distinct)
    results |= _moments([ask for ask in distinct if isinstance(ask, Moments)], data)
    for ask in distinct:
        if isinstance(ask, Quantiles):
            results[ask] = _quantiles(ask, data)
        if isinstance(ask, Newest) and ask not in results:
            assert data.history is not None
            results[ask] = data.history.newest(ask)
    return results


_APART = pl.QueryOptFlags(comm_subplan_elim=False)
"""What queries have in common would be held in memory whole, to be read once."""


class _Plans:
    """Counts of the same keys are one pass: the one with folds and targets tells the others."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def collect(self, asks: Sequence[Statistic]) -> dict[Statistic, Any]:
        counts = [ask for ask in asks if isinstance(ask, Counts)]
        widest = {ask: self._widest(ask, counts) for ask in counts}
        queries: dict[Statistic, pl.LazyFrame] = {ask: self._count(ask) for ask in dict.fromkeys(widest.values())}
        queries |= {ask: self._longest(ask) for ask in asks if isinstance(ask, Longest)}
        latest = [ask for ask in asks if isinstance(ask, Newest) and (ask.of, ask.count, ask.liked) == (self.data.row[2], 1, False)]
        queries |= {ask: self._latest(ask) for ask in latest}
        frames = (
            dict(zip(queries, pl.collect_all(list(queries.values()), engine="streaming", optimizations=_APART), strict=True))
            if queries
            else {}
        )
        results: dict[Statistic, Any] = {}
        for ask in counts:
            results[ask] = _narrowed(ask, frames[widest[ask]])
        for statistic in asks:
            if isinstance(statistic, Longest):
                results[statistic] = frames[statistic].item()
        return results | {ask: frames[ask].sort(ask.by) for ask in latest}

    def _latest(self, ask: Newest) -> pl.LazyFrame:
        """The newest time is the largest: no order is needed."""
        assert self.data.history is not None
        rows = self.data.history.scan(ask.pages).select(ask.by, ask.of)
        return rows.group_by(ask.by).agg(pl.col(ask.of).max().alias(VALUES)).with_columns(pl.concat_list(VALUES))

    def _widest(self, ask: Counts, others: list[Counts]) -> Counts:
        """With targets, folds and all, where somebody asks for the same keys so."""
        same = [other for other in others if (other.keys, other.table, other.explode) == (ask.keys, ask.table, ask.explode)]
        if ask.targets:
            same = [other for other in same if other.folds == ask.folds and other.targets]
            return Counts(ask.keys, ask.table, ask.explode, tuple(dict.fromkeys(t for other in same for t in other.targets)), ask.folds)
        wide = next((other for other in same if other.targets), None)
        return ask if wide is None else self._widest(wide, others)

    def _count(self, ask: Counts) -> pl.LazyFrame:
        frame = self.data.table(ask.table)
        wanted: list[pl.Expr] = [pl.len().cast(pl.Int64).alias("count")]
        columns = [pl.col(name) for name in ask.keys]
        if ask.targets:
            columns.append(fold_of(self.data.row, ask.folds).alias(FOLD))
            kinds = frame.collect_schema()
            columns += [_units(name, kinds[name]).alias(sum_of(name)) for name in ask.targets]
            wanted += [pl.col(sum_of(name)).sum() for name in ask.targets]
            wanted += [pl.col(sum_of(name)).count().cast(pl.Int64).alias(rows_of(name)) for name in ask.targets]
        frame = frame.select(columns)
        if ask.explode:
            frame = frame.explode(*ask.keys, empty_as_null=False)
        keys = [*ask.keys, *([FOLD] if ask.targets else [])]
        return frame.drop_nulls(ask.keys).group_by(keys).agg(wanted)

    def _longest(self, ask: Longest) -> pl.LazyFrame:
        return self.data.table(ask.table).select(pl.col(ask.column).list.len().max().cast(pl.Int64))


def _units(name: str, dtype: pl.DataType) -> pl.Expr:
    """A target as whole numbers."""
    if dtype.is_integer() or dtype == pl.Boolean:
        return pl.col(name).cast(pl.Int64) * UNIT
    return (pl.col(name).cast(pl.Float64) * UNIT).round().cast(pl.Int64)


def _narrowed(ask: Counts, counted: pl.DataFrame) -> pl.DataFrame:
    if ask.targets or FOLD not in counted.columns:
        names = [*ask.keys, *([FOLD] if ask.targets else []), "count"]
        return counted.select(*names, *(part(name) for part in (sum_of, rows_of) for name in ask.targets))
    return counted.group_by(ask.keys).agg(pl.col("count").sum())


def _moments(asks: list[Moments], data: Data) -> dict[Statistic, Any]:
    """Bounds first; then sums of whole parts of the largest number, which add up alike in any order."""
    results: dict[Statistic, Any] = {}
    for table in dict.fromkeys(ask.table for ask in asks):
        of_table = [ask for ask in asks if ask.table == table]
        frame = data.table(table).select(number_of(ask.column) for ask in of_table)
        bounds = [
            part.alias(f"{name}.{at}")
            for at, ask in enumerate(of_table)
            for name, part in (
                ("count", pl.col(ask.column).count()),
                ("low", pl.col(ask.column).min()),
                ("high", pl.col(ask.column).max()),
            )
        ]
        edges = frame.select(bounds).collect(engine="streaming").row(0, named=True)
        sums = []
        for at, ask in enumerate(of_table):
            scale = scale_of(edges[f"low.{at}"], edges[f"high.{at}"])
            parts = (pl.col(ask.column).cast(pl.Float64) / scale * FINE).round().cast(pl.Int64)
            squares = parts * parts
            sums += [
                parts.sum().alias(f"sum.{at}"),
                (squares // FINE).sum().alias(f"high.{at}"),
                (squares % FINE).sum().alias(f"low.{at}"),
            ]
        totals = frame.select(sums).collect(engine="streaming").row(0, named=True)
        for at, ask in enumerate(of_table):
            terms = (
                *(edges[f"{name}.{at}"] for name in ("count", "low", "high")),
                *(totals[f"{name}.{at}"] for name in ("sum", "high", "low")),
            )
            results[ask] = summary_of(*terms)
    return results


def number_of(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float32).fill_nan(None)


def scale_of(low: float | None, high: float | None) -> float:
    """What numbers are measured in parts of."""
    return max(abs(low or 0.0), abs(high or 0.0)) or 1.0


def summary_of(count: int, low: float | None, high: float | None, total: int, above: int, below: int) -> Summary:
    """Of sums in parts of the scale: of the parts, and of their squares by whole and remaining `FINE`. No bound is a negative zero."""
    if not count or low is None or high is None:
        return NONE
    squares = above * FINE + below
    apart = squares * count - total * total  # of whole numbers, exactly
    unit = scale_of(low, high) / FINE
    return Summary(count, total / count * unit, max(0, apart) / count * unit * unit, float(low) + 0.0, float(high) + 0.0)


DIGITS = 6


def _quantiles(ask: Quantiles, data: Data) -> tuple[float, ...]:
    """Of the values' first six digits: there are never too many of them."""
    values = data.table(ask.table).select(number_of(ask.column).drop_nulls().round_sig_figs(DIGITS).alias("value"))
    return quantiles_of(values.group_by("value").agg(pl.len().alias("count")).sort("value").collect(engine="streaming"), ask.parts)


def quantiles_of(counted: pl.DataFrame, parts: int) -> tuple[float, ...]:
    """Of (value, count), by value. None is a negative zero."""
    if not len(counted):
        return (0.0,)
    reached = counted["count"].cum_sum().to_numpy()
    shares = np.arange(1, parts) / parts * reached[-1]
    bounds = counted["value"].to_numpy()[np.minimum(np.searchsorted(reached, shares, side="right"), len(reached) - 1)]
    return tuple(float(bound) + 0.0 for bound in np.unique(bounds))
