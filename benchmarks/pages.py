"""Cost of page views in etl: a log without them, with them but no sequence that shows them, and with one.

    python -m benchmarks.pages [--rows 2000000] [--runs 3]

Half as many views as interactions, of 500 pages; a sequence of 20. The first two must publish the same training rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.harness import Fields, Missed, Outcome, alternate, benchmark, scratch
from benchmarks.in_process_stages import films, run_as_process
from benchmarks.movielens_rows import FILMS, USERS, write_log
from benchmarks.tables import rows_of_runs
from shared.contracts.spec import RecommenderSpec

CONTENDERS = ("no views", "views, not shown", "views among the items")
PAGES = 500
UNITS = {"time": "s", "CPU": "s", "peak memory": "MiB"}


@benchmark("pages")
def pages(rows: int = 2_000_000, runs: int = 3) -> Iterator[Outcome]:
    with scratch(on_disk=True) as folder:
        write(folder, rows)
        measured = alternate({name: partial(etl, folder, name) for name in CONTENDERS}, runs)
    for name, each in measured.items():
        yield from rows_of_runs(f"{rows:,} interactions, {rows // 2:,} views", name, [figures for figures, _ in each], UNITS)
    same = measured[CONTENDERS[0]][-1][1] == measured[CONTENDERS[1]][-1][1]
    yield Fields(same=same)
    if not same:
        yield Missed("views that no sequence shows leave the training rows unchanged")


def write(folder: Path, rows: int) -> None:
    ratings = pl.read_parquet(write_log(folder / "plain.parquet", rows))
    random = np.random.default_rng(4)
    views = pl.DataFrame(
        {
            "userId": random.integers(1, USERS + 1, rows // 2),
            "page": [f"/page/{number}" for number in random.zipf(1.5, rows // 2) % PAGES],
            "timestamp": random.choice(ratings["timestamp"].to_numpy(), rows // 2),
        },
        schema_overrides={name: ratings.schema[name] for name in ("userId", "timestamp")},
    )
    pl.concat([ratings, views], how="diagonal").sort("timestamp", maintain_order=True).write_parquet(folder / "log.parquet")
    pl.DataFrame({"movieId": np.arange(1, FILMS + 1)}).write_parquet(folder / "films.parquet")


def etl(folder: Path, name: str) -> tuple[dict[str, float], str]:
    """Returns figures, and the digest of the training rows."""
    views, shown = name != CONTENDERS[0], name == CONTENDERS[2]
    sequence = {"of": "movieId", "by": "userId", "length": 20, "pages": shown}
    document = films(
        folder / ("log.parquet" if views else "plain.parquet"),
        folder / "films.parquet",
        features=[{"categorify": ["userId", "movieId"]}, {"sequence": sequence}],
    )
    document["schema"] |= {"page": "page"} if views else {}
    _, manifest, used = run_as_process(folder, "etl", RecommenderSpec.model_validate(document))
    return {"time": used.seconds, "CPU": used.cpu, "peak memory": used.peak}, manifest.files["train.parquet"].sha256


if __name__ == "__main__":
    pages()
