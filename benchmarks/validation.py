"""What it takes to judge a batch: time and peak memory of `eyas data validate`'s process for 4 and 16 million rows, and how both grow.

    python -m benchmarks.validation [--rows 4000000] [--grown 16000000] [--runs 3] [--users 10000]

Rows in no order, row groups of a million; so many users for a million rows; a table of 60,000 items, and of all users. Once as by
default, once with rows that must be unique, once with a tenth of the items unknown. Files are mapped into memory and count.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import Row, peak, publish

ITEMS = 60_000
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "as by default": ({}, ITEMS),
    "rows that must be unique": ({"unique": ["userId", "movieId"], "bad_rows": {"stop": None}}, ITEMS),
    "a tenth of the items unknown": ({}, ITEMS * 9 // 10),
}
"""What is wished, and how many items the table has."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--grown", type=int, default=16_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--users", type=int, default=10_000, help="for each million rows")
    said = parser.parse_args()
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="validation-", dir=_folder()) as scratch:
        for rows in (said.rows, said.grown):
            folder = Path(scratch) / str(rows)
            write(folder, rows, max(1, said.users * rows // 1_000_000))
            size = (folder / "ratings.parquet").stat().st_size / 2**20
            found.append(Row(f"{rows:,} rows", "the file", "size", "MiB", [size]))
            for name, (validation, items) in CASES.items():
                runs = [judged(folder, validation, items) for _ in range(said.runs)]
                for metric, unit, at in (("wall", "s", 0), ("cpu", "s", 1), ("peak memory", "MiB", 2)):
                    found.append(Row(f"{rows:,} rows", name, metric, unit, [run[at] for run in runs]))
    publish("validation", found)
    return 0


def write(folder: Path, rows: int, users: int) -> None:
    folder.mkdir()
    chance = np.random.default_rng(rows)
    pl.DataFrame(
        {
            "userId": chance.integers(1, users + 1, rows),
            "movieId": chance.integers(1, ITEMS + 1, rows),
            "rating": chance.integers(1, 11, rows) / 2,
            "timestamp": chance.integers(800_000_000, 1_600_000_000, rows),
        }
    ).write_parquet(folder / "ratings.parquet", row_group_size=1_000_000)
    pl.DataFrame({"userId": range(1, users + 1), "country": ["de", "fr"] * (users // 2) + ["it"] * (users % 2)}).write_parquet(
        folder / "users.parquet"
    )


def judged(folder: Path, validation: dict[str, Any], items: int) -> tuple[float, float, float]:
    """Seconds, seconds of CPU, MiB."""
    pl.DataFrame({"movieId": range(1, items + 1), "year": [1950 + n % 70 for n in range(items)]}).write_parquet(folder / "items.parquet")
    spec = {
        "name": "films",
        "data": {
            "interactions": {"uri": str(folder / "ratings.parquet")},
            "items": {"uri": str(folder / "items.parquet"), "key": "movieId"},
            "users": {"uri": str(folder / "users.parquet"), "key": "userId"},
            "validate": validation,
        },
        "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "request.json").write_text(json.dumps(["validate", {"source": str(folder / "spec.json"), "roots": ["/"]}]))
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "request.json").open() as told, (folder / "answer.json").open("w") as answer:
        process = subprocess.Popen([sys.executable, "-m", "pipelines.data"], stdin=told, stdout=answer)
        highest = 0.0
        while process.poll() is None:
            highest = max(highest, peak(process.pid))
            time.sleep(0.02)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads((folder / "answer.json").read_text())
    if process.returncode or found["found"]["refusal"]:
        raise SystemExit(found["fault"] or found["found"]["refusal"])
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, highest


def _folder() -> Path:
    path = Path("var/bench").absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
