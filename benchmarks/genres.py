"""Attributes of items and new items: `mlp` with and without genres and years, on ml-100k.

    python -m benchmarks.genres --data FOLDER [--seeds 3] [--hidden 0.2]

FOLDER holds ml-100k.inter and ml-100k.item (typed headers). The newest fifth of the ratings is held out; before it a share of the items,
drawn by the seed, loses its ratings, so that it is cold. The stages run as processes, as in a run; a like is a rating from 4 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Outcome, benchmark, scratch
from benchmarks.in_process_stages import films, run_as_process
from benchmarks.tables import rows_of_runs
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageName

KEYS: list[dict[str, Any]] = [{"categorify": ["user_id", "item_id"]}]
GENRES = {"multi_hot": "genres", "separator": " "}
CONTENDERS: dict[str, list[dict[str, Any]]] = {
    "keys alone": KEYS,
    "with genres": [*KEYS, GENRES],
    "with genres and years": [*KEYS, GENRES, {"fill": "year"}, {"normalise": "year"}],
}
METRICS = ("auc/99", *(f"{metric}{part}" for part in ("", "{cold_items}") for metric in ("hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10")))
TEST = 0.2
STAGES: tuple[StageName, ...] = ("etl", "train", "evaluate")


@benchmark("genres")
def genres(data: Path, seeds: int = 3, hidden: float = 0.2) -> Iterator[Outcome]:
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    with scratch() as root:
        for seed in range(1, seeds + 1):
            folder = root / str(seed)
            folder.mkdir()
            after = write(data, folder, hidden, seed)
            for name, features in CONTENDERS.items():
                measured[name].append(evaluate(folder, features, seed, after))
    case = f"{hidden:.0%} of the items cold"
    for contender, name, side in (
        ("popularity", "keys alone", "popularity"),
        *((f"eyas: mlp {name}", name, "candidate") for name in CONTENDERS),
    ):
        runs = [{metric: metrics[f"{side}.{metric}"] for metric in METRICS} for metrics in measured[name]]
        yield from rows_of_runs(case, contender, runs, dict.fromkeys(METRICS, ""))


def write(data: Path, folder: Path, hidden: float, seed: int) -> float:
    """Writes the items, and the ratings without those that cold items had before the holdout; returns the seconds of the holdout."""
    ratings = read_typed(data / "ml-100k.inter").sort("timestamp", "user_id", "item_id")
    year = pl.col("release_year").cast(pl.Float64, strict=False).alias("year")
    read_typed(data / "ml-100k.item").select("item_id", pl.col("class").alias("genres"), year).write_parquet(folder / "items.parquet")
    keys = ratings["item_id"].unique().sort()
    cold = keys.filter(pl.Series(np.random.default_rng(seed).random(len(keys)) < hidden))
    cut = ratings["timestamp"][round((1 - TEST) * len(ratings))]
    ratings = ratings.filter((pl.col("timestamp") >= cut) | ~pl.col("item_id").is_in(cold.implode()))
    ratings.write_parquet(folder / "ratings.parquet")
    return float(ratings["timestamp"][-1] - cut)


def read_typed(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, separator="\t", quote_char=None, infer_schema=False)
    frame = frame.rename({name: name.partition(":")[0] for name in frame.columns})
    numbers = {"user_id": pl.Int64, "item_id": pl.Int64, "rating": pl.Float64, "timestamp": pl.Float64}
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in numbers.items() if name in frame.columns)


def evaluate(folder: Path, features: list[dict[str, Any]], seed: int, after: float) -> dict[str, float]:
    """Returns the metrics of all stages."""
    tables = (folder / "ratings.parquet", folder / "items.parquet")
    model = {"family": "mlp", "train": {"seed": seed}}
    document = films(*tables, user="user_id", item="item_id", features=features, split={"test": f"{int(after)}s"}, model=model)
    spec = RecommenderSpec.model_validate(document)
    files: dict[str, Files] = {}
    metrics: dict[str, float] = {}
    for stage in STAGES:
        _, manifest, _ = run_as_process(folder, stage, spec, files)
        files[stage] = manifest.files
        metrics |= manifest.metrics
    return metrics


if __name__ == "__main__":
    genres()
