"""Training's rows with what counted of their users at their own time: how long it takes, and how much memory, by how much was written.

    python -m benchmarks.moments [--rows 4000000] [--writes 0 1000000 4000000] [--runs 3]

MovieLens-shaped interactions of 162,541 users; town and age of random users are written at random moments of the same years. Without
writes each user has one row, whatever the moment. Each run is a process of its own and times the work alone, without its imports.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console

from benchmarks.etl import Run, watched
from benchmarks.etl_rows import BEGAN, USERS, YEARS, write_rows
from benchmarks.report import Row, publish

_PIECE = 1 << 18


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--writes", type=int, nargs="+", default=[0, 1_000_000, 4_000_000])
    parser.add_argument("--runs", type=int, default=3)
    said = parser.parse_args()
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    found: dict[int, list[Run]] = {}
    with tempfile.TemporaryDirectory(prefix="moments-", dir="var/bench") as scratch:
        folder = Path(scratch).absolute()
        rows = write_rows(folder / "rows.parquet", said.rows)
        files = {count: write_values(folder / f"{count}.jsonl", count) for count in said.writes}
        for _ in range(said.runs):
            for count, path in files.items():
                out = folder / "out"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                run = watched([sys.executable, "-m", "benchmarks.moments_eyas", str(rows), str(path), str(out)])
                Console().print(f"{said.rows:,} rows, {count:,} writes: {run.seconds:.2f} s, {run.mebibytes:,.0f} MiB")
                found.setdefault(count, []).append(run)
    publish("moments", table(found, said.rows))
    return 0


def write_values(path: Path, count: int, seed: int = 8) -> Path:
    """Of one user after the other, as a run is given them."""
    chance = np.random.Generator(np.random.PCG64(seed))
    users = np.sort(chance.integers(1, USERS + 1, count))
    with path.open("wb") as lines:
        for start in range(0, count, _PIECE):
            some = users[start : start + _PIECE]
            at = (BEGAN + chance.integers(0, YEARS * 365 * 86_400, len(some))) * 1_000_000
            towns, ages = chance.integers(0, 5_000, len(some)), chance.integers(10, 90, len(some)).astype(np.float64)
            values = pl.struct(pl.Series("town", towns).cast(pl.String), pl.Series("age", ages), eager=True)
            pl.DataFrame({"key": some, "at": at, "values": values}).write_ndjson(lines)
    return path


def table(found: dict[int, list[Run]], rows: int) -> list[Row]:
    lines = []
    for count, runs in found.items():
        case = f"{rows:,} rows, {count:,} writes"
        lines.append(Row(case, "eyas: polars", "time", "s", [one.seconds for one in runs]))
        lines.append(Row(case, "eyas: polars", "peak memory", "MiB", [one.mebibytes for one in runs]))
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
