"""What views of pages cost etl: a log without them, with them and no sequence that shows them, and with one.

    python -m benchmarks.pages [--rows 2000000] [--runs 3]

Half as many views as interactions, of 500 pages; a sequence of 20. The first two must publish the same training rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.etl_rows import ITEMS, USERS, write_rows
from benchmarks.report import Row, publish
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec

CONTENDERS = ("no views", "views, not shown", "views among the items")
PAGES = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    said = parser.parse_args()
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pages-", dir="var/bench") as scratch:
        folder = Path(scratch).absolute()
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:  # what this process held would count as its children's peak
            apart.submit(write, folder, said.rows).result()
        rows, same = measured(folder, said.rows, said.runs)
    publish("pages", rows, same=same)
    return 0 if same else 1


def write(folder: Path, rows: int) -> None:
    rated = pl.read_parquet(write_rows(folder / "plain.parquet", rows))
    random = np.random.default_rng(4)
    views = pl.DataFrame(
        {
            "userId": random.integers(1, USERS + 1, rows // 2),
            "page": [f"/page/{number}" for number in random.zipf(1.5, rows // 2) % PAGES],
            "timestamp": random.choice(rated["timestamp"].to_numpy(), rows // 2),
        },
        schema_overrides={name: rated.schema[name] for name in ("userId", "timestamp")},
    )
    pl.concat([rated, views], how="diagonal").sort("timestamp", maintain_order=True).write_parquet(folder / "log.parquet")
    pl.DataFrame({"movieId": np.arange(1, ITEMS + 1)}).write_parquet(folder / "films.parquet")


def measured(folder: Path, rows: int, runs: int) -> tuple[list[Row], bool]:
    """And whether views that aren't shown left the rows to train on as they were."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in CONTENDERS}
    trained: dict[str, str] = {}
    for number in range(runs):
        for name in CONTENDERS:
            *figures, trained[name] = etl(folder, name, number)
            found[name].append((figures[0], figures[1], figures[2]))
    case, units = f"{rows:,} interactions, {rows // 2:,} views", {"time": "s", "CPU": "s", "peak memory": "MiB"}
    table = [
        Row(case, name, what, unit, [one[at] for one in found[name]]) for at, (what, unit) in enumerate(units.items()) for name in found
    ]
    return table, trained[CONTENDERS[0]] == trained[CONTENDERS[1]]


def etl(folder: Path, name: str, number: int) -> tuple[float, float, float, str]:
    """Seconds, seconds of CPU, MiB, and the digest of the rows to train on."""
    log, shown = ("plain" if name == CONTENDERS[0] else "log"), name == CONTENDERS[2]
    column = {} if log == "plain" else {"page": "page"}
    spec = RecommenderSpec.model_validate(
        {
            "name": "films",
            "data": {
                "interactions": {"uri": str(folder / f"{log}.parquet")},
                "items": {"uri": str(folder / "films.parquet"), "key": "movieId"},
            },
            "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}}
            | column,
            "features": [
                {"categorify": ["userId", "movieId"]},
                {"sequence": {"of": "movieId", "by": "userId", "length": 20, "pages": shown}},
            ],
            "gates": [{"parity": 1e-4}],
        }
    )
    attempt, store = f"{CONTENDERS.index(name)}-etl-{number + 1}", FsspecArtifacts(str(folder / "artifacts"))
    stage = StageSpec(stage="etl", run="pages", attempt=attempt, recommender=spec, data_roots=(str(folder),), artifacts=store.url)
    path = folder / f"{attempt}.json"
    path.write_text(stage.model_dump_json(by_alias=True))
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "pipelines.stages.etl", "--spec", str(path)], stdout=subprocess.DEVNULL)  # noqa: S603
    _, status, used = os.wait4(process.pid, 0)
    seconds, process.returncode = time.monotonic() - began, os.waitstatus_to_exitcode(status)
    manifest = store.manifest(attempt)
    assert process.returncode == 0 and manifest is not None, f"etl with {name} ended with {process.returncode}"
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, manifest.files["train.parquet"].sha256


if __name__ == "__main__":
    sys.exit(main())
