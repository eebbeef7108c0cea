"""Training rows with the users' values of their time: time and memory, by how many values were written.

    python -m benchmarks.moments [--rows 4000000] [--writes 0 1000000 4000000] [--runs 3]

MovieLens-shaped interactions of 162,541 users; town and age of random users are written at random moments of the same years. Without
writes each user has one row for all times. Each run is a process of its own and times the work alone, without its imports: as in etl, the
users table becomes a row for each stretch of time, the graph is fitted, and rows and users' features are written.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from benchmarks.harness import HIDDEN, Outcome, alternate, benchmark, scratch, watched
from benchmarks.movielens_rows import FILMS, GROUP, SECONDS, START, USERS, write_log
from benchmarks.tables import answer, rows_of_runs
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
UNITS = {"time": "s", "peak memory": "MiB"}


@benchmark("moments")
def moments(
    rows: int = 4_000_000,
    writes: list[int] = [0, 1_000_000, 4_000_000],  # noqa: B006  read only
    runs: int = 3,
    files: Annotated[list[str] | None, HIDDEN] = None,
) -> Iterator[Outcome]:
    if files:
        answer(make_rows(*map(Path, files)))
    with scratch(on_disk=True) as folder:
        ratings = write_log(folder / "rows.parquet", rows)
        values = {f"{count:,} writes": write_values(folder / f"{count}.jsonl", count) for count in writes}
        measured = alternate({name: partial(measure, ratings, path, folder / "output") for name, path in values.items()}, runs)
    for name, each in measured.items():
        yield from rows_of_runs(f"{rows:,} rows, {name}", "eyas: polars", each, UNITS)


def measure(ratings: Path, writes: Path, output: Path) -> dict[str, float]:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    used = watched([sys.executable, "-m", "benchmarks.moments", "--files", str(ratings), str(writes), str(output)])
    return {"time": used.document["seconds"], "peak memory": used.peak}


def write_values(path: Path, count: int, seed: int = 8) -> Path:
    """Writes values of one user after the other, in the order in which a run gets them."""
    random = np.random.Generator(np.random.PCG64(seed))
    users = np.sort(random.integers(1, USERS + 1, count))
    with path.open("wb") as lines:
        for start in range(0, count, 2 * GROUP):
            part = users[start : start + 2 * GROUP]
            at = (START + random.integers(0, SECONDS, len(part))) * 1_000_000
            towns, ages = random.integers(0, 5_000, len(part)), random.integers(10, 90, len(part)).astype(np.float64)
            values = pl.struct(pl.Series("town", towns).cast(pl.String), pl.Series("age", ages), eager=True)
            pl.DataFrame({"key": part, "at": at, "values": values}).write_ndjson(lines)
    return path


def make_rows(source: Path, writes: Path, folder: Path) -> dict[str, float]:
    """Does the work of etl. An empty file has no writes."""
    people = {"userId": range(1, USERS + 1), "town": ["none"] * USERS, "age": [40.0] * USERS}
    users, films = pl.DataFrame(people, schema_overrides={"age": pl.Float32}), pl.DataFrame({"movieId": range(1, FILMS + 1)})
    began = time.monotonic()
    rows = pl.scan_parquet(source).select(
        pl.col("userId").alias("user"),
        pl.col("movieId").alias("item"),
        pl.col("timestamp").cast(pl.Float64).alias("time"),
        (pl.col("rating") >= 4).cast(pl.Int8).alias("label"),
    )
    schema = pl.Schema({"userId": pl.Int64(), "movieId": pl.Int64(), "timestamp": pl.Int64()})
    of_users = pl.Schema({"town": pl.String(), "age": pl.Float32()})
    entries = TypeAdapter(tuple[Operator, ...]).validate_python(FEATURES)
    prepared = prepare(compile_graph(entries, Tables("userId", "movieId", "timestamp", schema, pl.Schema(), of_users)), films, users, rows)
    table = prepared.users
    assert table is not None
    if writes.stat().st_size:
        table = by_moments(table, "userId", laid_down(writes, VIEW, folder / "written.parquet"), VIEW, rows)
    prepared = replace(prepared, users=table).fit(rows)
    prepared.write_rows(rows, rows.clear(), None, (folder / "rows.parquet", folder / "none.parquet"))
    prepared.graph.table(table.lazy(), "user").collect().write_parquet(folder / "users.parquet")
    return {"seconds": time.monotonic() - began, "users": len(table)}


if __name__ == "__main__":
    moments()
