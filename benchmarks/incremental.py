"""Features fitted on each day's new data, compared with a fit on all data: the graph grows by daily slices, or is fitted at once.

    python -m benchmarks.incremental [--rows 4000000] [--slices 5] [--runs 3]

The features are those of the ETL benchmark. The fitted states are compared: vocabularies, counts, sums by fold, each user's newest row.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from benchmarks import etl_eyas
from benchmarks.harness import Fields, Missed, Outcome, Row, benchmark, scratch, timed
from benchmarks.movielens_rows import write_log
from benchmarks.tables import with_ratios
from pipelines.features.graph import Graph
from pipelines.features.operators.categorify import Categorify, MultiHot


@benchmark("incremental")
def incremental(rows: int = 4_000_000, slices: int = 5, runs: int = 3) -> Iterator[Outcome]:
    times: dict[str, list[float]] = {"all at once": [], "the last slice": [], "all slices": []}
    with scratch(on_disk=True) as folder:
        ratings, size = pl.scan_parquet(write_log(folder / "rows.parquet", rows)), rows // slices
        for _ in range(runs):
            seconds, full_fit = timed(lambda: fit(ratings, rows, folder / "history"))
            times["all at once"].append(seconds)
            grown, began, last = None, time.perf_counter(), 0.0
            for number in range(slices):
                part = ratings.slice(number * size, size)
                last, grown = timed(lambda part=part, grown=grown: fit(part, size, folder / "history", grown))  # type: ignore[misc]
            times["the last slice"].append(last)
            times["all slices"].append(time.perf_counter() - began)
    assert grown is not None
    different = differences(grown, full_fit)
    case = f"{rows:,} rows, {slices} slices"
    yield from with_ratios((Row(case, f"eyas: {name}", "time", "s", values) for name, values in times.items()), "time")
    yield Fields(differences=different)
    if different:
        yield Missed(f"a state grown by slices is that of a fit at once: {'; '.join(different)}")


def fit(rows: pl.LazyFrame, count: int, folder: Path, previous: Graph | None = None) -> Graph:
    shutil.rmtree(folder, ignore_errors=True)
    return etl_eyas.fit(rows, count, folder, previous)[0]


def differences(grown: Graph, whole: Graph) -> list[str]:
    different = []
    for ours, theirs in zip(grown.operators, whole.operators, strict=True):
        for name, frame in ours.saved().frames.items():
            pair = frame, theirs.saved().frames[name]
            if isinstance(ours, Categorify | MultiHot):  # codes are in the order in which values came
                pair = pair[0].select("value", "count").sort("value"), pair[1].select("value", "count").sort("value")
            if not pair[0].equals(pair[1]):
                different.append(f"{name} differs")
    return different


if __name__ == "__main__":
    incremental()
