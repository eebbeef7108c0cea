"""What a run makes of one spec's features for each family: the etl stage as a process, and what its served unit would ask for.

    python -m benchmarks.families [--rows 1000000] [--runs 3]

`mlp` reads all of them, as every family did before each said what it reads; `mf` and `popularity` the keys alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.etl_eyas import FEATURES
from benchmarks.etl_rows import ITEMS, USERS, write_rows
from benchmarks.report import Row, publish
from pipelines.features.graph import load_graph
from pipelines.features.raw import signature
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec

FAMILIES = ("mlp", "mf", "popularity")
MORE: list[dict[str, Any]] = [
    {"fill": ["price", "age"]},
    {"log": "price"},
    {"normalise": ["price", "age"]},
    {"sequence": {"of": "movieId", "by": "userId", "length": 10}},
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    said = parser.parse_args()
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, float]]] = {family: [] for family in FAMILIES}
    with tempfile.TemporaryDirectory(prefix="families-", dir="var/bench") as scratch:
        folder = Path(scratch).absolute()
        write(folder, said.rows)
        for number in range(said.runs):
            for family in FAMILIES:
                found[family].append(etl(folder, family, number))
    units = {"time": "s", "peak memory": "MiB", "published": "MB", "features": "", "inputs of the served unit": "", "served features": "MB"}
    case = f"{said.rows:,} rows"
    publish(
        "families",
        [Row(case, family, what, unit, [one[what] for one in runs]) for what, unit in units.items() for family, runs in found.items()],
    )
    return 0


def write(folder: Path, rows: int) -> None:
    write_rows(folder / "ratings.parquet", rows)
    random = np.random.default_rng(3)
    prices = random.lognormal(2, 1, ITEMS)
    pl.DataFrame({"movieId": np.arange(1, ITEMS + 1), "price": prices}).write_parquet(folder / "films.parquet")
    pl.DataFrame({"userId": np.arange(1, USERS + 1), "age": random.integers(10, 90, USERS)}).write_parquet(folder / "people.parquet")


def recommender(folder: Path, family: str) -> RecommenderSpec:
    keys = {"films": "movieId", "people": "userId"}
    items, users = ({"uri": str(folder / f"{name}.parquet"), "key": key} for name, key in keys.items())
    said = {
        "name": "films",
        "data": {"interactions": {"uri": str(folder / "ratings.parquet")}, "items": items, "users": users},
        "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [*FEATURES, *MORE],
        "model": {"family": family},
        "gates": [{"parity": 1e-4}],
    }
    return RecommenderSpec.model_validate(said)


def etl(folder: Path, family: str, number: int) -> dict[str, float]:
    attempt, store = f"{family}-etl-{number + 1}", FsspecArtifacts(str(folder / "artifacts"))
    spec = StageSpec(
        stage="etl", run=family, attempt=attempt, recommender=recommender(folder, family), data_roots=(str(folder),), artifacts=store.url
    )
    path = folder / attempt / "spec.json"
    path.parent.mkdir()
    path.write_text(spec.model_dump_json(by_alias=True))
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "pipelines.stages.etl", "--spec", str(path)], stdout=subprocess.DEVNULL)  # noqa: S603
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    manifest = store.manifest(attempt)
    assert process.returncode == 0 and manifest is not None, f"etl of '{family}' ended with {process.returncode}"
    graph = load_graph(lambda name: store.fetch(manifest.files[name], folder / "fetched" / attempt / name))
    return {
        "time": seconds,
        "peak memory": used.ru_maxrss / 1024,
        "published": sum(file.size for file in manifest.files.values()) / 1e6,
        "features": float(len(graph.features)),
        "inputs of the served unit": float(len(signature(graph).inputs)),
        "served features": graph.lower().ByteSize() / 1e6,
    }


if __name__ == "__main__":
    sys.exit(main())
