"""The ETL benchmark's work by our feature graph: `python -m benchmarks.etl_eyas ENGINE ROWS.parquet FOLDER`.

As etl does it: what came before each row is computed by user, the graph is fitted, its state is saved, and the features are written. It
also runs in NVTabular's environment, so it imports nothing else of the benchmarks.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from pipelines.features.engines.choice import engine
from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables, compute
from pipelines.features.graph import Graph, Tables, compile_graph
from pipelines.features.prepared import ROW_GROUP
from shared.contracts.features import Operator
from shared.contracts.resources import EtlResources

FEATURES: list[dict[str, Any]] = [
    {"categorify": ["userId", "movieId"]},
    {"multi_hot": "genres"},
    {"target_encode": {"of": "movieId", "folds": 5, "smoothing": 20}},
    {"count_encode": "userId", "scale": "none"},
    {"lag": {"of": "timestamp", "by": "userId"}},
    {"calendar": {"of": "timestamp", "parts": ["hour"]}},
    {"cross": ["genres", "hour"], "buckets": 10_000},
    {"cyclic": {"of": "timestamp", "periods": ["day", "week"]}},
]


def fit(
    ratings: pl.LazyFrame, count: int, folder: Path, previous: Graph | None = None, statistics: Any = compute
) -> tuple[Graph, pl.LazyFrame, RowHistory]:
    """Returns the fitted graph, the prepared rows, and what came before each."""
    entries = TypeAdapter(tuple[Operator, ...]).validate_python(FEATURES)
    graph = compile_graph(entries, Tables("userId", "movieId", "timestamp", ratings.collect_schema()))
    prepared = ratings.with_columns(graph.prepared("interactions")).with_columns(label=(pl.col("rating") >= 4).cast(pl.Int8))
    rows = prepared.drop("rating").with_row_index(ROW)
    history = RowHistory(rows, graph.ordered, graph.row, folder, count)
    return graph.fit(PreparedTables(rows, None, None, graph.row, history), previous, statistics), rows, history


def main() -> None:
    name, source, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    gpu = name == "polars-gpu"
    resources = EtlResources(engine="polars", gpu=1) if gpu else EtlResources.model_validate({"engine": name})
    with engine(resources, folder, logging.getLogger("etl"), has_gpu=gpu) as chosen:
        began = time.monotonic()
        ratings = pl.scan_parquet(source)
        count = ratings.select(pl.len()).collect().item()
        graph, rows, history = fit(ratings, count, folder / "history", statistics=chosen.compute)
        (folder / "state").mkdir()
        graph.save(folder / "state")
        features = chosen.transform(graph, rows, mode="rows", history=history, keep=("label", "timestamp"))
        named = features.rename({key: f"{key}_code" for key in (graph.user, graph.item)})
        named.sink_parquet(folder / "rows.parquet", row_group_size=ROW_GROUP, compression_level=1)  # as pipelines.features.prepared
        seconds = time.monotonic() - began
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
