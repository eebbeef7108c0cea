"""Training's rows with what counted of their users then: `python -m benchmarks.moments_eyas ROWS.parquet WRITES.jsonl FOLDER`.

As etl does it: the users table becomes one of a row for each stretch of time, the graph is fitted, rows and users' features are written.
An empty file of writes is none at all.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from benchmarks.etl_rows import ITEMS, USERS
from pipelines.features.graph import Tables, compile_graph
from pipelines.features.prepared import prepare
from pipelines.stages.user_overrides import by_moments, laid_down
from shared.contracts.features import Operator
from shared.contracts.online import OnlineColumn, View

FEATURES: list[dict[str, Any]] = [
    {"categorify": ["userId", "movieId", "town"]},
    {"normalise": "age"},
    {"target_encode": {"of": "town", "folds": 5, "smoothing": 20}},
    {"calendar": {"of": "timestamp", "parts": ["hour"]}},
    {"cross": ["town", "hour"], "buckets": 10_000},
]
VIEW = View(name="users", columns=(OnlineColumn(name="town", dtype="string"), OnlineColumn(name="age", dtype="float32")))


def main() -> None:
    source, writes, folder = (Path(one) for one in sys.argv[1:])
    people = {"userId": range(1, USERS + 1), "town": ["none"] * USERS, "age": [40.0] * USERS}
    users, films = pl.DataFrame(people, schema_overrides={"age": pl.Float32}), pl.DataFrame({"movieId": range(1, ITEMS + 1)})
    began = time.monotonic()
    rows = pl.scan_parquet(source).select(
        pl.col("userId").alias("user"),
        pl.col("movieId").alias("item"),
        pl.col("timestamp").cast(pl.Float64).alias("time"),
        (pl.col("rating") >= 4).cast(pl.Int8).alias("label"),
    )
    schema = pl.Schema({"userId": pl.Int64(), "movieId": pl.Int64(), "timestamp": pl.Int64()})
    known = pl.Schema({"town": pl.String(), "age": pl.Float32()})
    entries = TypeAdapter(tuple[Operator, ...]).validate_python(FEATURES)
    ready = prepare(compile_graph(entries, Tables("userId", "movieId", "timestamp", schema, pl.Schema(), known)), films, users, rows)
    table = ready.users
    assert table is not None
    if writes.stat().st_size:
        table = by_moments(table, "userId", laid_down(writes, VIEW, folder / "written.parquet"), VIEW, rows)
    ready = replace(ready, users=table).fit(rows)
    ready.write_rows(rows, rows.clear(), None, (folder / "rows.parquet", folder / "none.parquet"))
    ready.graph.table(table.lazy(), "user").collect().write_parquet(folder / "users.parquet")
    sys.stdout.write(json.dumps({"seconds": time.monotonic() - began, "users": len(table)}) + "\n")


if __name__ == "__main__":
    main()
