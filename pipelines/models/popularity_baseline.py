"""The baseline that every run has: items by their number of positives in the training data.

A warm run sees only the newest events, so the parent's scores order items with equal counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

POPULARITY = "popularity.parquet"


@dataclass(frozen=True)
class Popularity:
    """A score for each row of the catalogue; equal items have equal scores."""

    items: NDArray[np.int64]
    scores: NDArray[np.float64]

    def ordered(self) -> NDArray[np.int64]:
        """Returns the item keys, the most popular first; equal scores are ordered by key."""
        order = np.lexsort((self.items, -self.scores))
        return np.asarray(self.items[order], dtype=np.int64)

    def save(self, path: Path) -> Path:
        pl.DataFrame({"item": self.items, "score": self.scores}).write_parquet(path)
        return path


def fit_popularity(train: pl.LazyFrame, items: pl.Series, parent: Popularity | None = None) -> Popularity:
    positives = train.filter(pl.col("label") == 1).group_by("item").agg(pl.len().cast(pl.Float64).alias("count"))
    frame = pl.DataFrame({"item": items}).join(positives.collect(engine="streaming"), on="item", how="left", maintain_order="left")
    scores = frame["count"].fill_null(0.0).to_numpy().copy()
    if parent is not None and len(parent.items):
        before = pl.DataFrame({"item": parent.items, "before": parent.scores / (parent.scores.max() + 1)})
        scores += frame.join(before, on="item", how="left", maintain_order="left")["before"].fill_null(0.0).to_numpy()
    return Popularity(frame["item"].to_numpy(), scores)


def load_popularity(path: Path) -> Popularity:
    frame = pl.read_parquet(path)
    return Popularity(frame["item"].to_numpy(), frame["score"].to_numpy())
