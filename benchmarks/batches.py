"""Training batches alone: rows of etl in, features and labels as numpy arrays out, with all stages of the loader.

    python -m benchmarks.batches [--rows 4000000] [--runs 5]

The etl stage makes the files, of rows shaped like MovieLens and of 15 features (benchmarks.families). Each contender is a process of its
own that reads three epochs, of which the fastest counts. Rows are those that a step trains on, negatives among them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl

from benchmarks.families import etl, write
from benchmarks.harness import HIDDEN, Outcome, alternate, benchmark, memory, scratch, timed, watched
from benchmarks.tables import answer, rows_of_runs
from pipelines.features.graph import load_graph
from pipelines.inputs.batches import Batches
from pipelines.inputs.bloom_filter import read_liked
from pipelines.inputs.tables import USERS, read_table
from shared.artifacts import FsspecArtifacts

CONTENDERS = {"as they are": (0, False), "4 negatives": (4, False), "4 negatives, verified": (4, True)}
UNITS = {"speed": "rows/s", "cpu": "ns a row", "peak memory beyond the tables": "MiB", "liked, read in": "s"}
EPOCHS, BATCH = 3, 4096


@benchmark("batches")
def batches(rows: int = 4_000_000, runs: int = 5, contender: Annotated[list[str] | None, HIDDEN] = None) -> Iterator[Outcome]:
    if contender:
        answer(read_epochs(Path(contender[0]), *CONTENDERS[contender[1]]))
    with scratch(on_disk=True) as folder:
        command = [sys.executable, "-m", "benchmarks.batches", "--contender", str(publish_tables(folder, rows))]
        measured = alternate({name: partial(watched, [*command, name]) for name in CONTENDERS}, runs)
    for name, each in measured.items():
        yield from rows_of_runs(f"{rows:,} rows", name, [used.document for used in each], UNITS)


def publish_tables(folder: Path, rows: int) -> Path:
    """Returns a folder with the files of etl."""
    write(folder, rows)
    store = FsspecArtifacts(str(folder / "artifacts"))
    _, manifest = etl(folder, "mlp")
    for name, file in manifest.files.items():
        store.fetch(file, folder / "published" / name)
    return folder / "published"


def read_epochs(folder: Path, negatives: int, verified: bool) -> dict[str, float]:
    graph = load_graph(lambda name: folder / name)
    items = read_table(folder / "items.features.parquet", graph, "item")
    users = read_table(folder / USERS, graph, "user") if (folder / USERS).exists() else None
    keys = pl.read_parquet(folder / "items.parquet", columns=[graph.item])[graph.item].to_numpy()
    before = memory(os.getpid())
    seconds, liked = timed(lambda: read_liked(folder / "train.parquet", None, keys) if verified else None)
    reader = Batches(folder / "train.parquet", graph, items, users, BATCH, negatives, 1, liked=liked)
    speeds, cpu = [], []
    for number in range(EPOCHS):
        wall, processor = time.perf_counter(), time.process_time()
        rows = sum(len(batch) for batch in reader.epoch(number))
        speeds.append(rows / (time.perf_counter() - wall))
        cpu.append(1e9 * (time.process_time() - processor) / rows)
    assert rows == reader.rows_per_epoch()
    figures = {"speed": max(speeds), "cpu": min(cpu), "peak memory beyond the tables": memory(os.getpid()) - before}
    return figures | ({"liked, read in": seconds} if verified else {})


if __name__ == "__main__":
    batches()
