"""New data alone, against everything again: the feature graph fitted on daily slices, one after the other, and on all of them at once.

    python -m benchmarks.incremental [--rows 4000000] [--slices 5] [--runs 3]

The features are those of the ETL benchmark. What was fitted is compared: vocabularies, counts, sums by fold, what was newest of each user.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter
from rich.console import Console

from benchmarks.etl_eyas import FEATURES
from benchmarks.etl_rows import write_rows
from benchmarks.report import Row, publish
from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from pipelines.features.operators.categorify import Categorify, MultiHot
from shared.contracts.features import Operator


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    said = parser.parse_args()
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    times: dict[str, list[float]] = {"all at once": [], "the last slice": [], "all slices": []}
    unlike: list[str] = []
    with tempfile.TemporaryDirectory(prefix="incremental-", dir="var/bench") as scratch:
        folder = Path(scratch)
        rows = pl.scan_parquet(write_rows(folder / "rows.parquet", said.rows))
        size = said.rows // said.slices
        for _ in range(said.runs):
            began = time.monotonic()
            whole = fit(rows, said.rows, folder / "history")
            times["all at once"].append(time.monotonic() - began)
            known, began = None, time.monotonic()
            for number in range(said.slices):
                last = time.monotonic()
                known = fit(rows.slice(number * size, size), size, folder / "history", known)
            times["the last slice"].append(time.monotonic() - last)
            times["all slices"].append(time.monotonic() - began)
            assert known is not None
            unlike = differences(known, whole)
    Console().print("fitted by slices: " + ("; ".join(unlike) or "the same values, counts, sums and codes' meanings as at once"))
    case = f"{said.rows:,} rows, {said.slices} slices"
    medians = {name: sorted(found)[len(found) // 2] for name, found in times.items()}
    found = [
        Row(case, f"eyas: {name}", "time", "s", values, {other: medians[name] / medians[other] for other in medians if other != name})
        for name, values in times.items()
    ]
    publish("incremental", found, differences=unlike)
    return 1 if unlike else 0


def fit(rows: pl.LazyFrame, count: int, folder: Path, known: Graph | None = None) -> Graph:
    shutil.rmtree(folder, ignore_errors=True)
    entries = TypeAdapter(tuple[Operator, ...]).validate_python(FEATURES)
    graph = compile_graph(entries, Tables("userId", "movieId", "timestamp", rows.collect_schema()))
    prepared = rows.with_columns(graph.prepared("interactions")).with_columns(label=(pl.col("rating") >= 4).cast(pl.Int8))
    numbered = prepared.drop("rating").with_row_index(ROW)
    history = RowHistory(numbered, graph.ordered, graph.row, folder, count)
    return graph.fit(PreparedTables(numbered, None, None, graph.row, history), known)


def differences(grown: Graph, whole: Graph) -> list[str]:
    found = []
    for ours, theirs in zip(grown.operators, whole.operators, strict=True):
        for name, frame in ours.saved().frames.items():
            other = theirs.saved().frames[name]
            if isinstance(ours, Categorify | MultiHot):  # codes stand in the order in which values came
                same = frame.select("value", "count").sort("value").equals(other.select("value", "count").sort("value"))
            else:
                same = frame.equals(other)
            if not same:
                found.append(f"{name} differs")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
