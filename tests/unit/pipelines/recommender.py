"""A spec and a data set that are right, for tests that break one thing at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shared.contracts.spec import RecommenderSpec


def spec(folder: Path, **changes: Any) -> RecommenderSpec:
    value: dict[str, Any] = {
        "name": "films",
        "data": {
            "interactions": {"uri": str(folder / "ratings.parquet")},
            "items": {"uri": str(folder / "films.parquet"), "key": "movieId"},
        },
        "schema": {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "movieId", "year"]}, {"multi_hot": "genres", "separator": "|"}],
    }
    return RecommenderSpec.model_validate(value | changes)


def ratings(rows: int = 200, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "userId": random.integers(1, 30, rows),
            "movieId": random.integers(1, 21, rows),
            "rating": random.choice([2.0, 5.0], rows),
            "at": 1.6e9 + np.arange(rows) * 3600.0,
        }
    )


def films(count: int = 20) -> pl.DataFrame:
    names = ["Drama", "Comedy", "Horror"]
    genres = ["|".join(names[: n % 4]) or None for n in range(count)]
    years = [None if n == 3 else 1990 + n % 5 for n in range(count)]
    return pl.DataFrame({"movieId": range(1, count + 1), "genres": genres, "year": years})


def write(folder: Path, interactions: pl.DataFrame | None = None, items: pl.DataFrame | None = None) -> None:
    (ratings() if interactions is None else interactions).write_parquet(folder / "ratings.parquet")
    (films() if items is None else items).write_parquet(folder / "films.parquet")
