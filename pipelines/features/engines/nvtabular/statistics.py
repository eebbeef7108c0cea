"""Computes the operators' statistics by NVTabular, read immediately after the fit.

Categorify counts; JoinGroupby counts with targets and folds. Both use whole numbers, so results equal polars' to the last bit.
TargetEncoding isn't used: in a workflow with JoinGroupby on the same column both write one file (tests show the clash). So JoinGroupby
computes those sums, by key and fold, in a separate folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipelines.features.columns import BLANK, Column, Kind
from pipelines.features.engines.nvtabular.plain import parts, plain
from pipelines.features.engines.nvtabular.session import DaskSession
from pipelines.features.engines.polars import DIGITS, PreparedTables, number_of, quantiles_of, scale_of, summary_of
from pipelines.features.operators.target import fold_of
from pipelines.features.statistics import (
    FINE,
    FOLD,
    UNIT,
    LongestList,
    Moments,
    NewestValues,
    Quantiles,
    Results,
    Statistic,
    ValueCounts,
    rows_of,
    sum_of,
)

_COUNTER = "~one"


def compute(asks: Sequence[Statistic], data: PreparedTables, session: DaskSession) -> Results:
    distinct = list(dict.fromkeys(asks))
    results: dict[Statistic, Any] = {ask: _longest(ask, data) for ask in distinct if isinstance(ask, LongestList)}
    for table in dict.fromkeys(ask.table for ask in distinct if isinstance(ask, ValueCounts)):
        results |= _counts([ask for ask in distinct if isinstance(ask, ValueCounts) and ask.table == table], data, session)
    for ask in distinct:
        if isinstance(ask, Moments | Quantiles):
            results[ask] = _of_numbers(ask, data, session)
        if isinstance(ask, NewestValues):
            assert data.history is not None
            results[ask] = data.history.newest(ask)
    return results


def _longest(ask: LongestList, data: PreparedTables) -> int | None:
    """Returns the length of the longest list; known first, since a list becomes as many columns."""
    longest: int | None = (
        data.table(ask.table).select(pl.col(ask.column).list.len().max().cast(pl.Int64)).collect(engine="streaming").item()
    )
    return longest


def _counts(asks: list[ValueCounts], data: PreparedTables, session: DaskSession) -> dict[Statistic, Any]:
    """Counts in one pass over the table."""
    import nvtabular

    frame = data.table(asks[0].table)
    schema = frame.collect_schema()
    keys = {name: _column(name, schema[name]) for ask in asks for name in ask.keys}
    longest = {name: _longest(LongestList(name, asks[0].table), data) or 1 for name, key in keys.items() if key.many}
    columns = [expr for name, key in keys.items() for expr in plain(key, longest.get(name))]
    folds = sorted({ask.folds for ask in asks if ask.targets})
    columns += [fold_of(data.row, count).cast(pl.Int64).alias(f"{FOLD}{count}") for count in folds]
    for name in dict.fromkeys(target for ask in asks for target in ask.targets):
        units = (pl.col(name).cast(pl.Float64) * UNIT).round().cast(pl.Int64)
        columns += [units.fill_null(0).alias(sum_of(name)), units.is_not_null().cast(pl.Int64).alias(rows_of(name))]
    rows = session.write(frame.select(*columns, pl.lit(1, pl.Int64).alias(_COUNTER)))
    if rows is None:
        return {ask: _empty(ask, schema) for ask in asks}
    names = {name: parts(name, longest.get(name)) for name in keys}
    fits = [_Counting(ask, names, session) for ask in asks]
    nvtabular.Workflow(_joined([fit.node for fit in fits])).fit(session.dataset(rows))
    return {fit.ask: fit.read(schema) for fit in fits}


class _Counting:
    """One request as an NVTabular operator."""

    def __init__(self, ask: ValueCounts, names: dict[str, list[str]], session: DaskSession) -> None:
        from nvtabular import ops

        self.ask = ask
        self.by = [f"{FOLD}{ask.folds}", *ask.keys] if ask.targets else list(ask.keys)
        folder = str(session.new("counts"))
        if ask.targets or len(ask.keys) > 1:
            sums = [part(target) for part in (sum_of, rows_of) for target in ask.targets]
            self.op = ops.JoinGroupby(cont_cols=sums or [_COUNTER], stats=["count", "sum"] if sums else ["count"], out_path=folder)
            self.node = [tuple(self.by) if len(self.by) > 1 else self.by[0]] >> self.op
        else:
            columns = names[ask.keys[0]]
            self.op = ops.Categorify(out_path=folder, encode_type="joint")
            self.node = [tuple(columns) if len(columns) > 1 else columns[0]] >> self.op

    def read(self, schema: pl.Schema) -> pl.DataFrame:
        """Reads the counts without null keys, which have a value of their own here."""
        ((name, path),) = self.op.categories.items()
        ask, types = self.ask, {key: _scalar(schema[key]) for key in self.ask.keys}
        if not (ask.targets or len(ask.keys) > 1):
            counts = pl.read_parquet(path).select(pl.col(name).alias(ask.keys[0]), pl.col(f"{name}_size").alias("count"))
        else:
            stem = "_".join(self.by)
            sums = [part(target) for part in (sum_of, rows_of) for target in ask.targets]
            columns = [pl.col(f"{stem}_{column}_sum").cast(pl.Int64).alias(column) for column in sums]
            fold = [pl.col(self.by[0]).cast(pl.Int8).alias(FOLD)] if ask.targets else []
            counts = pl.read_parquet(path).select(*ask.keys, *fold, pl.col(f"{stem}_count").alias("count"), *columns)
        counts = counts.with_columns(pl.col("count").cast(pl.Int64), *(pl.col(key).cast(dtype) for key, dtype in types.items()))
        for key, dtype in types.items():
            if dtype != pl.Int32:  # codes have no null
                counts = counts.filter(pl.col(key).is_not_null() & (pl.col(key) != BLANK["string" if dtype == pl.String else "int64"]))
        return counts


def _empty(ask: ValueCounts, schema: pl.Schema) -> pl.DataFrame:
    types: dict[str, pl.DataType] = {key: _scalar(schema[key]) for key in ask.keys} | ({FOLD: pl.Int8()} if ask.targets else {})
    types |= {name: pl.Int64() for name in ("count", *(part(target) for part in (sum_of, rows_of) for target in ask.targets))}
    return pl.DataFrame(schema=types)


def _of_numbers(ask: Moments | Quantiles, data: PreparedTables, session: DaskSession) -> Any:
    """Computes over Dask's partitions: exact sums in whole parts of the largest number; quantiles from value counts."""
    value = number_of(ask.column).drop_nulls()
    if isinstance(ask, Quantiles):
        value = value.round_sig_figs(DIGITS)
    path = session.write(data.table(ask.table).select(value.alias("value")))
    rows = None if path is None else session.dataset(path).to_ddf()
    if isinstance(ask, Quantiles):
        counted = _each(rows, lambda part: part.groupby("value").size().reset_index(name="count"))
        frames = [_polars(frame) for frame in counted] or [pl.DataFrame(schema={"value": pl.Float32, "count": pl.Int64})]
        counts = pl.concat(frames).group_by("value").agg(pl.col("count").sum()).sort("value")
        return quantiles_of(counts, ask.parts)
    edges = _each(rows, lambda part: (len(part), float(part["value"].min()), float(part["value"].max())))
    count = sum(edge[0] for edge in edges)
    low, high = min((edge[1] for edge in edges), default=None), max((edge[2] for edge in edges), default=None)
    scale = scale_of(low, high)

    def sums(part: Any) -> tuple[int, int, int]:
        wide = (part["value"].values.astype("float64") / scale * FINE).round().astype("int64")
        squares = wide * wide
        return int(wide.sum()), int((squares // FINE).sum()), int((squares % FINE).sum())

    totals = np.array(_each(rows, sums) or [(0, 0, 0)], object).sum(axis=0)
    return summary_of(count, low, high, int(totals[0]), int(totals[1]), int(totals[2]))


def _each(rows: Any, function: Callable[[Any], Any]) -> list[Any]:
    """Applies a function to every partition."""
    import dask

    return [] if rows is None else list(dask.compute(*(dask.delayed(function)(part) for part in rows.to_delayed())))


def _polars(part: Any) -> pl.DataFrame:
    import pyarrow as pa

    table = part.to_arrow(preserve_index=False) if hasattr(part, "to_arrow") else pa.Table.from_pandas(part, preserve_index=False)
    return pl.DataFrame(pl.from_arrow(table))


def _joined(nodes: list[Any]) -> Any:
    joined = nodes[0]
    for node in nodes[1:]:
        joined = joined + node
    return joined


def _column(name: str, dtype: pl.DataType) -> Column:
    inner = _scalar(dtype)
    kinds: dict[pl.DataType, Kind] = {pl.String(): "string", pl.Int32(): "code", pl.Int64(): "int64"}
    return Column(name, kinds.get(inner, "float32"), "context", many=inner != dtype)


def _scalar(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.List | pl.Array):
        return dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()
    return dtype
