"""Output of etl from one spec's features, for each model family: the stage as a process, and the inputs of the served unit.

    python -m benchmarks.families [--rows 1000000] [--runs 3]

`mlp` reads all features, `mf` and `popularity` the keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.etl_eyas import FEATURES
from benchmarks.harness import Outcome, alternate, benchmark, scratch
from benchmarks.in_process_stages import films, run_as_process
from benchmarks.movielens_rows import FILMS, USERS, write_log
from benchmarks.tables import rows_of_runs
from pipelines.features.graph import load_graph
from pipelines.features.raw import signature
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Manifest

FAMILIES = ("mlp", "mf", "popularity")
MORE: list[dict[str, Any]] = [
    {"fill": ["price", "age"]},
    {"log": "price"},
    {"normalise": ["price", "age"]},
    {"sequence": {"of": "movieId", "by": "userId", "length": 10}},
]
UNITS = {"time": "s", "peak memory": "MiB", "published": "MB", "features": "", "inputs of the served unit": "", "served features": "MB"}


@benchmark("families")
def families(rows: int = 1_000_000, runs: int = 3) -> Iterator[Outcome]:
    with scratch(on_disk=True) as folder:
        write(folder, rows)
        measured = alternate({family: partial(etl, folder, family) for family in FAMILIES}, runs)
    for family, each in measured.items():
        yield from rows_of_runs(f"{rows:,} rows", family, [figures for figures, _ in each], UNITS)


def write(folder: Path, rows: int) -> None:
    write_log(folder / "ratings.parquet", rows)
    random = np.random.default_rng(3)
    prices = random.lognormal(2, 1, FILMS)
    pl.DataFrame({"movieId": np.arange(1, FILMS + 1), "price": prices}).write_parquet(folder / "films.parquet")
    pl.DataFrame({"userId": np.arange(1, USERS + 1), "age": random.integers(10, 90, USERS)}).write_parquet(folder / "people.parquet")


def etl(folder: Path, family: str) -> tuple[dict[str, float], Manifest]:
    tables = [folder / f"{name}.parquet" for name in ("ratings", "films", "people")]
    spec = RecommenderSpec.model_validate(films(*tables, features=[*FEATURES, *MORE], model={"family": family}))
    store, manifest, used = run_as_process(folder, "etl", spec)
    graph = load_graph(lambda name: store.fetch(manifest.files[name], folder / "fetched" / manifest.attempt / name))
    figures = {
        "time": used.seconds,
        "peak memory": used.peak,
        "published": sum(file.size for file in manifest.files.values()) / 1e6,
        "features": float(len(graph.features)),
        "inputs of the served unit": float(len(signature(graph).inputs)),
        "served features": graph.lower().ByteSize() / 1e6,
    }
    return figures, manifest


if __name__ == "__main__":
    families()
