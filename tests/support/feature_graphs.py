"""Fitted feature graphs for tests: of keys alone, or of what a spec says over frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from pipelines.features.prepared import Prepared, graph_of, prepare
from shared.contracts.features import Categorify
from shared.contracts.spec import RecommenderSpec


def of_keys(users: int, items: int, user: str = "user", item: str = "item") -> Graph:
    """Keys are positions; codes are two more."""
    schema = pl.Schema({user: pl.Int64(), item: pl.Int64(), "at": pl.Int64()})
    graph = compile_graph((Categorify(categorify=(user, item)),), Tables(user, item, "at", schema))
    count = max(users, items)
    positions = np.arange(count)
    # Each key as often as the others, so that the order of codes is that of the keys.
    seen = pl.LazyFrame(
        {
            user: np.where(positions < users, positions, None).tolist(),
            item: np.where(positions < items, positions, None).tolist(),
            "at": positions,
        },
        schema=schema,
    )
    return graph.fit(PreparedTables(seen, None, None, graph.row))


def unfitted(
    spec: RecommenderSpec, items: pl.Schema, users: pl.Schema | None = None, extra: Mapping[str, pl.DataType] | None = None
) -> Graph:
    return graph_of(spec, extra or {}, items, users, {"items": "the items table films.parquet"})


def fitted(
    spec: RecommenderSpec,
    rows: pl.LazyFrame,
    items: pl.DataFrame,
    known: Graph | None = None,
    users: pl.DataFrame | None = None,
    folder: Path | None = None,
) -> Prepared:
    """`rows` are normalised interactions, as etl has them: user, item, time, label."""
    there = rows.collect_schema()
    extra = {name.removeprefix("x."): dtype for name, dtype in there.items() if name.startswith("x.")}
    graph = unfitted(spec, items.schema, users.schema if users is not None else None, extra)
    ready = prepare(graph, items, users, rows)
    return ready.fit(rows, known, ready.history(rows, rows.clear(), folder) if folder else None)
