"""Whether what is known of items helps on items that nobody met yet: `mlp` with and without genres and years, on ml-100k.

    python -m benchmarks.genres --data FOLDER [--seeds 3] [--hidden 0.2]

FOLDER holds ml-100k.inter and ml-100k.item (typed headers). The newest fifth of the ratings is held out; before it a share of the items,
drawn by the seed, loses its ratings, so that it is cold. The stages run as processes, as in a run; a like is a rating from 4 on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import Row, publish
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageName, StageSpec

KEYS: list[dict[str, Any]] = [{"categorify": ["user_id", "item_id"]}]
CONTENDERS: dict[str, list[dict[str, Any]]] = {
    "keys alone": KEYS,
    "with genres": [*KEYS, {"multi_hot": "genres", "separator": " "}],
    "with genres and years": [*KEYS, {"multi_hot": "genres", "separator": " "}, {"fill": "year"}, {"normalise": "year"}],
}
METRICS = ("hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10")
SLICES = ("", "{cold_items}")
TEST = 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=float, default=0.2)
    said = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="genres-") as scratch:
        for seed in range(1, said.seeds + 1):
            folder = Path(scratch) / str(seed)
            folder.mkdir()
            write(said.data, folder, said.hidden, seed)
            for name, features in CONTENDERS.items():
                for metric, value in judged(folder, name.replace(" ", "-"), features, seed).items():
                    found.setdefault((name, metric), []).append(value)
    wanted = ["auc/99", *(f"{metric}{part}" for part in SLICES for metric in METRICS)]
    rows = [
        Row(f"{said.hidden:.0%} of the items cold", "popularity", metric, "", found["keys alone", f"popularity.{metric}"])
        for metric in wanted
    ]
    rows += [
        Row(f"{said.hidden:.0%} of the items cold", f"eyas: mlp {name}", metric, "", found[name, f"candidate.{metric}"])
        for name in CONTENDERS
        for metric in wanted
    ]
    publish("genres", rows)
    return 0


def write(data: Path, folder: Path, hidden: float, seed: int) -> None:
    """Ratings without those that cold items had before the holdout, and the items."""
    ratings = _typed(data / "ml-100k.inter").sort("timestamp", "user_id", "item_id")
    items = _typed(data / "ml-100k.item").select(
        "item_id", pl.col("class").alias("genres"), pl.col("release_year").cast(pl.Float64, strict=False).alias("year")
    )
    keys = ratings["item_id"].unique().sort()
    cold = keys.filter(pl.Series(np.random.default_rng(seed).random(len(keys)) < hidden))
    cut = ratings["timestamp"][round((1 - TEST) * len(ratings))]
    ratings.filter((pl.col("timestamp") >= cut) | ~pl.col("item_id").is_in(cold.implode())).write_parquet(folder / "ratings.parquet")
    pl.DataFrame({"cut": [cut]}).write_parquet(folder / "cut.parquet")
    items.write_parquet(folder / "items.parquet")


def _typed(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, separator="\t", quote_char=None, infer_schema=False)
    frame = frame.rename({name: name.partition(":")[0] for name in frame.columns})
    numbers = {"user_id": pl.Int64, "item_id": pl.Int64, "rating": pl.Float64, "timestamp": pl.Float64}
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in numbers.items() if name in frame.columns)


def judged(folder: Path, name: str, features: list[dict[str, Any]], seed: int) -> dict[str, float]:
    newest = pl.read_parquet(folder / "ratings.parquet")["timestamp"].max()
    after = float(newest) - pl.read_parquet(folder / "cut.parquet")["cut"][0]  # type: ignore[arg-type]
    spec = RecommenderSpec.model_validate(
        {
            "name": "films",
            "data": {
                "interactions": {"uri": str(folder / "ratings.parquet")},
                "items": {"uri": str(folder / "items.parquet"), "key": "item_id"},
            },
            "schema": {"user": "user_id", "item": "item_id", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
            "features": features,
            "split": {"test": f"{int(after)}s"},
            "model": {"family": "mlp", "train": {"seed": seed}},
            "gates": [{"parity": 1e-4}],
        }
    )
    store = FsspecArtifacts(str(folder / "artifacts"))
    done: dict[str, Files] = {}
    metrics: dict[str, float] = {}
    stages: tuple[StageName, ...] = ("etl", "train", "evaluate")
    for stage in stages:
        attempt = f"{name}-{stage}-1"
        said = StageSpec(
            stage=stage, run=name, attempt=attempt, recommender=spec, inputs=done, data_roots=(str(folder),), artifacts=store.url
        )
        path = folder / attempt / "spec.json"
        path.parent.mkdir()
        path.write_text(said.model_dump_json(by_alias=True))
        command = [sys.executable, "-m", f"pipelines.stages.{stage}", "--spec", str(path)]
        subprocess.run(command, check=True, stdout=sys.stderr)  # noqa: S603
        manifest = store.manifest(attempt)
        assert manifest is not None, f"{stage} of '{name}' published nothing"
        done[stage] = manifest.files
        metrics |= manifest.metrics
    return metrics


if __name__ == "__main__":
    sys.exit(main())
