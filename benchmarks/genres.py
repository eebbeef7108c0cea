"""Attributes of items and new items, on ml-100k: families with and without genres and years.

    python -m benchmarks.genres --data FOLDER [--seeds 5] [--hidden 0.2]

FOLDER holds ml-100k.inter and ml-100k.item (typed headers). The newest fifth of the ratings is held out; before it a share of the items,
drawn by the seed, loses its ratings, so that it is cold. The stages run in this process, as in a run; a like is a rating from 4 on. A
random order reaches an hr@10/99 of 0.1, and an hr@10 of 10 in 1,682.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl

from benchmarks.harness import Outcome, benchmark, say, scratch
from benchmarks.in_process_stages import InProcessStages, films
from benchmarks.tables import rows_of_runs
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageName

KEYS: list[dict[str, Any]] = [{"categorify": ["user_id", "item_id"]}]
GENRES = {"multi_hot": "genres", "separator": " "}
ATTRIBUTES: list[dict[str, Any]] = [*KEYS, GENRES, {"fill": "year"}, {"normalise": "year"}]
FAMILIES = ("mlp", "wide_deep", "dlrm", "two_tower", "session", "gbm")
CONTENDERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "mlp with keys alone": (KEYS, {"family": "mlp"}),
    "session with keys alone": (KEYS, {"family": "session"}),
    "mlp with genres": ([*KEYS, GENRES], {"family": "mlp"}),
    **{f"{family} with genres and years": (ATTRIBUTES, {"family": family}) for family in FAMILIES},
    **{
        f"{family}, unknown_items: {share}": (ATTRIBUTES, {"family": family, "params": {"unknown_items": share}})
        for family in FAMILIES
        for share in (0.0, 0.3)
    },
}
"""Features and model by contender."""
METRICS = ("hr@10/99", "ndcg@10/99", "hr@10")
PARTS = ("cold", "known")
TEST = 0.2
STAGES: tuple[StageName, ...] = ("etl", "train", "evaluate")


@benchmark("genres")
def genres(
    data: Annotated[Path, "folder with ml-100k.inter and ml-100k.item"],
    seeds: Annotated[int, "trainings of each contender, each with cold items of its own"] = 5,
    hidden: Annotated[float, "share of the items that are cold"] = 0.2,
    contenders: Annotated[Sequence[str], "contenders"] = tuple(CONTENDERS),
) -> Iterator[Outcome]:
    logging.getLogger("stage").setLevel(logging.ERROR)
    for contender in contenders:
        runs = []
        for seed in range(1, seeds + 1):
            with scratch() as folder:
                runs.append(evaluate(folder, contender, seed, write(data, folder, hidden, seed)))
            say(f"{contender}, seed {seed}: {runs[-1]}")
        yield from rows_of_runs(f"{hidden:.0%} of the items cold", contender, runs, dict.fromkeys(runs[0], ""))


def write(data: Path, folder: Path, hidden: float, seed: int) -> float:
    """Writes the items, and the ratings without those that cold items had before the holdout; returns the seconds of the holdout."""
    ratings = read_typed(data / "ml-100k.inter").sort("timestamp", "user_id", "item_id")
    year = pl.col("release_year").cast(pl.Float64, strict=False).alias("year")
    keys = ratings["item_id"].unique().sort()
    cold = keys.filter(pl.Series(np.random.default_rng(seed).random(len(keys)) < hidden))
    part = pl.when(pl.col("item_id").is_in(cold.implode())).then(pl.lit("cold")).otherwise(pl.lit("known")).alias("part")
    items = read_typed(data / "ml-100k.item").select("item_id", pl.col("class").alias("genres"), year, part)
    items.write_parquet(folder / "items.parquet")
    cut = ratings["timestamp"][round((1 - TEST) * len(ratings))]
    ratings = ratings.filter((pl.col("timestamp") >= cut) | ~pl.col("item_id").is_in(cold.implode()))
    ratings.write_parquet(folder / "ratings.parquet")
    return float(ratings["timestamp"][-1] - cut)


def read_typed(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, separator="\t", quote_char=None, infer_schema=False)
    frame = frame.rename({name: name.partition(":")[0] for name in frame.columns})
    numbers = {"user_id": pl.Int64, "item_id": pl.Int64, "rating": pl.Float64, "timestamp": pl.Float64}
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in numbers.items() if name in frame.columns)


def evaluate(folder: Path, contender: str, seed: int, after: float) -> dict[str, float]:
    """Returns the metrics of the candidate, over the cases of cold items and over the others."""
    features, model = CONTENDERS[contender]
    tables = (folder / "ratings.parquet", folder / "items.parquet")
    split = {"test": f"{int(after)}s"}
    document = films(*tables, user="user_id", item="item_id", features=features, split=split, model=model | {"train": {"seed": seed}})
    spec = RecommenderSpec.model_validate(document)
    stages, files = InProcessStages(folder), dict[str, Files]()
    for stage in STAGES:
        files[stage], outcome = stages.run(stage, spec, "full", files)
    slices = json.loads(outcome.files["report.json"].read_text())["models"]["candidate"]["slices"]
    return {f"{metric}, {part} items": slices[f"part={part}"]["metrics"][metric]["mean"] for part in PARTS for metric in METRICS}


if __name__ == "__main__":
    genres()
