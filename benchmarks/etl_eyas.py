"""The ETL benchmark's work by our feature graph: `python -m benchmarks.etl_eyas ENGINE ROWS.parquet FOLDER`.

As etl does it: what came before each row is worked out by user, the graph is fitted, its state is saved, and the features are written.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from pipelines.features.engines.choice import engine
from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from shared.contracts.features import Operator

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
KEPT = ("label", "timestamp")


def main() -> None:
    name, source, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with engine(name, folder) as chosen:
        began = time.monotonic()
        frame = pl.scan_parquet(source)
        entries = TypeAdapter(tuple[Operator, ...]).validate_python(FEATURES)
        graph = compile_graph(entries, Tables("userId", "movieId", "timestamp", frame.collect_schema()))
        prepared = frame.with_columns(graph.prepared("interactions")).with_columns(label=(pl.col("rating") >= 4).cast(pl.Int8))
        rows = prepared.drop("rating").with_row_index(ROW)
        count = frame.select(pl.len()).collect().item()
        history = RowHistory(rows, graph.ordered, graph.row, folder / "history", count)
        graph = graph.fit(PreparedTables(rows, None, None, graph.row, history), engine=chosen.compute)
        (folder / "state").mkdir()
        graph.save(folder / "state")
        made = chosen.transform(graph, rows, mode="rows", history=history, keep=KEPT)
        made.rename(_names(graph)).sink_parquet(folder / "rows.parquet")
        seconds = time.monotonic() - began
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")


def _names(graph: Graph) -> dict[str, str]:
    return {graph.user: f"{graph.user}_code", graph.item: f"{graph.item}_code"}


if __name__ == "__main__":
    main()
