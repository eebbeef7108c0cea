"""Time and peak memory of data validation: the process of `eyas data validate`, for 4 and 16 million rows.

    python -m benchmarks.validation [--rows 4000000] [--grown 16000000] [--runs 3] [--users 10000]

Rows are in random order, in row groups of a million; users grow with the rows; there are tables of 60,000 items and of all users. Cases:
default checks, rows that must be unique, and a tenth of the items unknown. Files are mapped into memory and count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl

from benchmarks.harness import Outcome, Row, benchmark, scratch, watched
from benchmarks.in_process_stages import films
from benchmarks.tables import rows_of_runs

ITEMS = 60_000
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "as by default": ({}, ITEMS),
    "rows that must be unique": ({"unique": ["userId", "movieId"], "bad_rows": {"stop": None}}, ITEMS),
    "a tenth of the items unknown": ({}, ITEMS * 9 // 10),
}
"""`data.validate`, and the number of items in the table."""


@benchmark("validation")
def validation(
    rows: int = 4_000_000, grown: int = 16_000_000, runs: int = 3, users: Annotated[int, "for each million rows"] = 10_000
) -> Iterator[Outcome]:
    with scratch(on_disk=True) as folder:
        for count in (rows, grown):
            write(folder, count, max(1, users * count // 1_000_000))
            yield Row(f"{count:,} rows", "the file", "size", "MiB", [(folder / "ratings.parquet").stat().st_size / 2**20])
            for name, (checks, items) in CASES.items():
                measured = [validate(folder, checks, items) for _ in range(runs)]
                yield from rows_of_runs(f"{count:,} rows", name, measured, {"wall": "s", "cpu": "s", "peak memory": "MiB"})


def write(folder: Path, rows: int, users: int) -> None:
    random = np.random.default_rng(rows)
    pl.DataFrame(
        {
            "userId": random.integers(1, users + 1, rows),
            "movieId": random.integers(1, ITEMS + 1, rows),
            "rating": random.integers(1, 11, rows) / 2,
            "timestamp": random.integers(800_000_000, 1_600_000_000, rows),
        }
    ).write_parquet(folder / "ratings.parquet", row_group_size=1_000_000)
    countries = ["de", "fr"] * (users // 2) + ["it"] * (users % 2)
    pl.DataFrame({"userId": range(1, users + 1), "country": countries}).write_parquet(folder / "users.parquet")


def validate(folder: Path, checks: dict[str, Any], items: int) -> dict[str, float]:
    pl.DataFrame({"movieId": range(1, items + 1), "year": [1950 + n % 70 for n in range(items)]}).write_parquet(folder / "items.parquet")
    spec = films(*(folder / f"{name}.parquet" for name in ("ratings", "items", "users")))
    spec["data"]["validate"] = checks
    (folder / "spec.json").write_text(json.dumps(spec))
    request = folder / "request.json"
    request.write_text(json.dumps(["validate", {"source": str(folder / "spec.json"), "roots": ["/"]}]))
    used = watched(["sh", "-c", 'exec "$0" -m pipelines.data < "$1"', sys.executable, str(request)])
    if refusal := used.document["fault"] or used.document["found"]["refusal"]:
        raise SystemExit(refusal)
    return {"wall": used.seconds, "cpu": used.cpu, "peak memory": used.peak}


if __name__ == "__main__":
    validation()
