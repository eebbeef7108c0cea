"""Default engine: streaming polars. Memory depends on the number of distinct values, not of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.features.engines.history import RowHistory
from pipelines.features.engines.queries import CPU, Queries
from pipelines.features.operators.ordered import VALUES
from pipelines.features.operators.target import fold_of
from pipelines.features.statistics import (
    FINE,
    FOLD,
    NONE,
    UNIT,
    LongestList,
    Moments,
    NewestValues,
    Quantiles,
    Results,
    Statistic,
    Summary,
    ValueCounts,
    rows_of,
    sum_of,
)


@dataclass(frozen=True)
class PreparedTables:
    """Prepared tables to fit operators on. `interactions` has the needed columns of the other tables too."""

    interactions: pl.LazyFrame
    items: pl.LazyFrame | None
    users: pl.LazyFrame | None
    row: tuple[str, str, str]
    """User, item, time: identify a row and order a user's rows."""
    history: RowHistory | None = None
    """History of each row, if an operator needs it."""
    pages: pl.LazyFrame | None = None
    """Page views to count, with the page's key in the item column; None: no page views."""

    def table(self, name: str) -> pl.LazyFrame:
        if name == "pages":
            return self.interactions.clear() if self.pages is None else self.pages
        frame = {"interactions": self.interactions, "items": self.items, "users": self.users}[name]
        assert frame is not None
        return frame


def compute(asks: Sequence[Statistic], data: PreparedTables, queries: Queries = CPU) -> Results:
    """Computes all statistics, in one pass where possible."""
    distinct = list(dict.fromkeys(asks))
    plans = _Plans(data, queries)
    results = plans.collect(distinct)
    results |= _moments([ask for ask in distinct if isinstance(ask, Moments)], data, queries)
    for ask in distinct:
        if isinstance(ask, Quantiles):
            results[ask] = _quantiles(ask, data, queries)
        if isinstance(ask, NewestValues) and ask not in results:
            assert data.history is not None
            results[ask] = data.history.newest(ask)
    return results


_LENGTH = "~length"


class _Plans:
    """Query plans that share a pass over equal keys: counts with folds and targets also give the plain counts."""

    def __init__(self, data: PreparedTables, queries: Queries) -> None:
        self.data, self.queries = data, queries

    def collect(self, asks: Sequence[Statistic]) -> dict[Statistic, Any]:
        counts = [ask for ask in asks if isinstance(ask, ValueCounts)]
        widest = {ask: self._widest(ask, counts) for ask in counts}
        longest = {ask: self._counted(ask, counts) for ask in asks if isinstance(ask, LongestList)}
        latest = [ask for ask in asks if isinstance(ask, NewestValues) and (ask.of, ask.count, ask.liked) == (self.data.row[2], 1, False)]
        plans: dict[Statistic, pl.LazyFrame] = {ask: self._count(ask) for ask in dict.fromkeys(widest.values())}
        plans |= {ask: self._longest(ask) for ask, count in longest.items() if count is None}
        plans |= {ask: self._latest(ask) for ask in latest}
        frames = dict(zip(plans, self.queries.collect("counts", list(plans.values())), strict=True)) if plans else {}
        results: dict[Statistic, Any] = {ask: _narrowed(ask, frames[widest[ask]].drop_nulls(ask.keys)) for ask in counts}
        for statistic, count in longest.items():
            results[statistic] = frames[statistic].item() if count is None else frames[widest[count]][_LENGTH].max()
        results |= {ask: frames[ask].select(ask.by, pl.concat_list(VALUES)).sort(ask.by) for ask in latest}
        return results

    def _latest(self, ask: NewestValues) -> pl.LazyFrame:
        """The newest time of all rows, the holdout's too, is the maximum: needs no order."""
        assert self.data.history is not None
        rows = self.data.history.scan(ask.pages).select(ask.by, ask.of)
        return rows.group_by(ask.by).agg(pl.col(ask.of).max().alias(VALUES))

    def _widest(self, ask: ValueCounts, others: list[ValueCounts]) -> ValueCounts:
        """Returns the count with all targets and folds requested for the same keys."""
        same = [other for other in others if (other.keys, other.table, other.explode) == (ask.keys, ask.table, ask.explode)]
        if ask.targets:
            same = [other for other in same if other.folds == ask.folds and other.targets]
            return ValueCounts(
                ask.keys, ask.table, ask.explode, tuple(dict.fromkeys(t for other in same for t in other.targets)), ask.folds
            )
        wide = next((other for other in same if other.targets), None)
        return ask if wide is None else self._widest(wide, others)

    def _count(self, ask: ValueCounts) -> pl.LazyFrame:
        """Also the counts of rows without a key."""
        frame = self.data.table(ask.table)
        wanted: list[pl.Expr] = [pl.len().cast(pl.Int64).alias("count")]
        columns = [pl.col(name) for name in ask.keys]
        if ask.targets:
            columns.append(fold_of(self.data.row, ask.folds).alias(FOLD))
            kinds = frame.collect_schema()
            columns += [_units(name, kinds[name]).alias(sum_of(name)) for name in ask.targets]
            wanted += [pl.col(sum_of(name)).sum() for name in ask.targets]
            wanted += [pl.col(sum_of(name)).count().cast(pl.Int64).alias(rows_of(name)) for name in ask.targets]
        keys = [*ask.keys, *([FOLD] if ask.targets else [])]
        if not ask.explode:
            return frame.select(columns).group_by(keys).agg(wanted)
        # With the length of the longest list that has the value, the lists are read once.
        lists = frame.select(*columns, pl.col(ask.keys[0]).list.len().alias(_LENGTH)).explode(*ask.keys, empty_as_null=False)
        return lists.group_by(keys).agg(*wanted, pl.col(_LENGTH).max().cast(pl.Int64))

    def _counted(self, ask: LongestList, counts: list[ValueCounts]) -> ValueCounts | None:
        """Returns the count that reads the same lists."""
        return next((other for other in counts if (other.keys, other.table, other.explode) == ((ask.column,), ask.table, True)), None)

    def _longest(self, ask: LongestList) -> pl.LazyFrame:
        return self.data.table(ask.table).select(pl.col(ask.column).list.len().max().cast(pl.Int64))


def _units(name: str, dtype: pl.DataType) -> pl.Expr:
    """Scales a target to whole numbers."""
    if dtype.is_integer() or dtype == pl.Boolean:
        return pl.col(name).cast(pl.Int64) * UNIT
    return (pl.col(name).cast(pl.Float64) * UNIT).round().cast(pl.Int64)


def _narrowed(ask: ValueCounts, counted: pl.DataFrame) -> pl.DataFrame:
    if ask.targets or FOLD not in counted.columns:
        names = [*ask.keys, *([FOLD] if ask.targets else []), "count"]
        return counted.select(*names, *(part(name) for part in (sum_of, rows_of) for name in ask.targets))
    return counted.group_by(ask.keys).agg(pl.col("count").sum())


def _moments(asks: list[Moments], data: PreparedTables, queries: Queries) -> dict[Statistic, Any]:
    """Computes bounds first, then sums in whole parts of the largest number, which don't depend on the order."""
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
        edges = queries.collect("bounds", [frame.select(bounds)])[0].row(0, named=True)
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
        totals = queries.collect("moments", [frame.select(sums)])[0].row(0, named=True)
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
    """Returns the unit of the sums: the largest absolute value."""
    return max(abs(low or 0.0), abs(high or 0.0)) or 1.0


def summary_of(count: int, low: float | None, high: float | None, total: int, above: int, below: int) -> Summary:
    """Returns moments from sums of parts of the scale and of their squares, split by `FINE`. Bounds are never a negative zero."""
    if not count or low is None or high is None:
        return NONE
    squares = above * FINE + below
    apart = squares * count - total * total  # exact: whole numbers
    unit = scale_of(low, high) / FINE
    return Summary(count, total / count * unit, max(0, apart) / count * unit * unit, float(low) + 0.0, float(high) + 0.0)


DIGITS = 6


def _quantiles(ask: Quantiles, data: PreparedTables, queries: Queries) -> tuple[float, ...]:
    """Computes quantiles of values rounded to six digits, which limits the number of distinct values."""
    values = data.table(ask.table).select(number_of(ask.column).drop_nulls().round_sig_figs(DIGITS).alias("value"))
    counts = values.group_by("value").agg(pl.len().alias("count")).sort("value")
    return quantiles_of(queries.collect("quantiles", [counts])[0], ask.parts)


def quantiles_of(counted: pl.DataFrame, parts: int) -> tuple[float, ...]:
    """Returns bounds from (value, count), sorted by value; never a negative zero."""
    if not len(counted):
        return (0.0,)
    reached = counted["count"].cum_sum().to_numpy()
    shares = np.arange(1, parts) / parts * reached[-1]
    bounds = counted["value"].to_numpy()[np.minimum(np.searchsorted(reached, shares, side="right"), len(reached) - 1)]
    return tuple(float(bound) + 0.0 for bound in np.unique(bounds))
