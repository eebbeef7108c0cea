"""Interactions with views of pages among them, and specs that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shared.contracts.spec import RecommenderSpec
from tests.unit.pipelines.recommender import ratings, spec

NAMES = ["home", "search", "cart", "ü", "日本"]
KEYS = {"categorify": ["userId", "movieId"]}
COUNTS = [{"count_encode": "movieId"}, {"target_encode": {"of": "movieId"}}, {"lag": {"of": "at", "by": "userId"}}]


def log(rows: int = 400, every: int = 4, names: list[Any] | None = None) -> pl.DataFrame:
    """Ratings, each of them on a page, and one view of a page to so many rows: it has no item, and no rating."""
    random = np.random.default_rng(7)
    frame = ratings(rows).with_columns(page=pl.Series(random.choice(names or NAMES, rows).tolist()))
    seen = pl.int_range(pl.len()) % every == every - 1
    return frame.with_columns(pl.when(~seen).then(pl.col(name)).alias(name) for name in ("movieId", "rating"))


def paged(folder: Path, features: list[dict[str, Any]] | None = None, **more: Any) -> RecommenderSpec:
    schema = spec(folder).document()["schema"] | {"page": "page"}
    return spec(folder, **({"schema": schema, "features": features or [KEYS, *COUNTS, sequence()]} | more))


def sequence(**more: Any) -> dict[str, Any]:
    return {"sequence": {"of": "movieId", "by": "userId", "length": 5, "pages": True} | more}
