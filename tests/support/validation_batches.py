"""Batches of interactions to validate: made by a seed, and damaged on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shared.contracts.spec import RecommenderSpec
from tests.unit.pipelines.recommender import films, spec


def world(rows: int = 4000, seed: int = 1, **more: Any) -> pl.DataFrame:
    """Users who differ in how much they like, films that differ in how they are liked, and sessions in time."""
    random = np.random.default_rng(seed)
    user, item = random.integers(1, 120, rows) ** 2 // 120 + 1, random.integers(1, 81, rows)
    rating = np.clip(np.round(3 + (item % 5 - 2) * 0.8 + (user % 3 - 1) * 0.5 + random.normal(0, 0.6, rows)), 1, 5)
    at = 1.6e9 + user * 86_400.0 + random.integers(0, 3600, rows)
    device = random.choice(["phone", "tablet", "desk"], rows, p=[0.6, 0.3, 0.1])
    return pl.DataFrame({"userId": user, "movieId": item, "rating": rating, "at": at, "device": device}).with_columns(**more)


def validated_spec(folder: Path, **validation: Any) -> RecommenderSpec:
    data = spec(folder).document()["data"]
    return spec(folder, data=data | {"validate": validation})


def some(column: str, value: Any, every: int = 50) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) % every == 7).then(pl.lit(value)).otherwise(column).alias(column)


def in_parts(folder: Path, frame: pl.DataFrame, count: int = 12) -> list[Path]:
    """The same rows in several files."""
    (folder / "parts").mkdir()
    size = -(-len(frame) // count)
    paths = []
    for n in range(count):
        paths.append(folder / "parts" / f"part-{n:02}.parquet")
        frame[n * size : (n + 1) * size].write_parquet(paths[-1])
    return paths


def of_parts(folder: Path, **validation: Any) -> RecommenderSpec:
    films(80).write_parquet(folder / "films.parquet")
    items = {"uri": str(folder / "films.parquet"), "key": "movieId"}
    return spec(folder, data={"interactions": {"uri": str(folder / "parts/*.parquet")}, "items": items, "validate": validation})
