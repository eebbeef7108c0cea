"""What our loader holds at most, by a budget, however many rows there are: `python -m benchmarks.loader --memory`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.loader_processes import Run, prepare, run
from benchmarks.report import Row, publish

BUDGET = 256
"""MiB."""
OVER = 1.1
COUNTS = (4_000_000, 16_000_000, 64_000_000)


def measure(folder: Path, counts: Sequence[int] = COUNTS) -> list[Row]:
    rows = []
    for count in counts:
        place = prepare(folder / str(count), count, set())
        for source in ("fill", "cache", "parquet"):
            had = run([sys.executable, "-m", "benchmarks.loader_eyas", f"numpy-{source}@{BUDGET}"], place, pool=0)
            rows += told(count, source, had)
        shutil.rmtree(place)
    publish("loader-memory", rows, budget=BUDGET)
    return rows


def told(count: int, source: str, had: Run) -> list[Row]:
    held = had.peak - had.imports
    case, who = f"{count:,} rows, {BUDGET} MiB", {"fill": "Parquet, cache being written"}.get(source, source)
    Console(soft_wrap=True).print(
        f"{case}, {who}: {held:,.0f} MiB, of it anonymous {had.anonymous:,.0f}; {had.rows / had.seconds:,.0f} rows/s"
    )
    return [
        Row(case, f"eyas: numpy, {who}", "peak memory over imports", "MiB", [held], note=_verdict(held)),
        Row(case, f"eyas: numpy, {who}", "of it backed by no file", "MiB", [had.anonymous], note=_verdict(had.anonymous)),
        Row(case, f"eyas: numpy, {who}", "throughput", "rows/s", [had.rows / had.seconds]),
    ]


def _verdict(held: float) -> str:
    return "" if held <= OVER * BUDGET else f"more than the budget and 10 % ({OVER * BUDGET:.0f} MiB)"
