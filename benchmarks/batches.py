"""Training's batches by themselves: rows of etl's in, features and labels as numpy arrays out, with all stages of the loader.

    python -m benchmarks.batches [--rows 4000000] [--runs 5]

The etl stage makes its files of rows shaped like MovieLens and of 15 features (benchmarks.families); each contender is a process of its
own that takes three epochs, of which the fastest counts. Rows are those that a step trains on, negatives among them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from benchmarks.families import etl, write
from benchmarks.report import Row, peak, publish
from pipelines.features.graph import load_graph
from pipelines.inputs.batches import Batches
from pipelines.inputs.bloom_filter import read_liked
from pipelines.inputs.tables import USERS, read_table
from shared.artifacts import FsspecArtifacts

CONTENDERS = {"as they are": (0, False), "4 negatives": (4, False), "4 negatives, verified": (4, True)}
UNITS = {"speed": "rows/s", "cpu": "ns a row", "peak memory beyond the tables": "MiB", "liked, read in": "s"}
EPOCHS, BATCH = 3, 4096


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "CONTENDER"), help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.one:
        sys.stdout.write(json.dumps(eaten(Path(said.one[0]), *CONTENDERS[said.one[1]])))
        return 0
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="batches-", dir="var/bench") as scratch:
        folder = published(Path(scratch).absolute(), said.rows)
        for _ in range(said.runs):
            for name in CONTENDERS:
                command = [sys.executable, "-m", "benchmarks.batches", "--one", str(folder), name]
                found[name].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))  # noqa: S603
    case = f"{said.rows:,} rows"
    publish(
        "batches",
        [
            Row(case, name, what, unit, [one[what] for one in runs])
            for what, unit in UNITS.items()
            for name, runs in found.items()
            if what in runs[0]
        ],
    )
    return 0


def published(folder: Path, rows: int) -> Path:
    """What etl has made, under its own names."""
    write(folder, rows)
    etl(folder, "mlp", 0)
    store = FsspecArtifacts(str(folder / "artifacts"))
    manifest = store.manifest("mlp-etl-1")
    assert manifest is not None
    for name, file in manifest.files.items():
        store.fetch(file, folder / "published" / name)
    return folder / "published"


def eaten(folder: Path, negatives: int, verified: bool) -> dict[str, float]:
    graph = load_graph(lambda name: folder / name)
    items = read_table(folder / "items.features.parquet", graph, "item")
    users = read_table(folder / USERS, graph, "user") if (folder / USERS).exists() else None
    keys = pl.read_parquet(folder / "items.parquet", columns=[graph.item])[graph.item].to_numpy()
    before, began = peak(os.getpid()), time.perf_counter()
    liked = read_liked(folder / "train.parquet", None, keys) if verified else None
    read = time.perf_counter() - began
    batches = Batches(folder / "train.parquet", graph, items, users, BATCH, negatives, 1, liked=liked)
    speeds, cpu = [], []
    for number in range(EPOCHS):
        wall, used, rows = time.perf_counter(), time.process_time(), 0
        for batch in batches.epoch(number):
            rows += len(batch)
        speeds.append(rows / (time.perf_counter() - wall))
        cpu.append(1e9 * (time.process_time() - used) / rows)
    assert rows == batches.rows_per_epoch()
    taken = {"speed": max(speeds), "cpu": min(cpu), "peak memory beyond the tables": peak(os.getpid()) - before}
    return taken | ({"liked, read in": read} if verified else {})


if __name__ == "__main__":
    sys.exit(main())
