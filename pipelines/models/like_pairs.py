"""Input of the families that learn from likes alone: pairs of user and item codes; and the metrics of such a training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST
from pipelines.models.family import Task
from pipelines.training.likes import LikePairs
from shared.domain.errors import Invalid


def liked_pairs(task: Task) -> LikePairs:
    """Returns the likes of known users for known items, by code, the oldest first, each with its largest weight; a warm run's history comes
    first."""
    graph = task.graph
    user_count, item_count = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
    rows = pl.scan_parquet(task.rows).filter(pl.col("label") == 1).sort("time", "user", "item", maintain_order=True)
    newest = rows.select("user_code", "item_row", "time", _weight(rows)).collect(engine="streaming")
    weights = newest["weight"].to_numpy()
    users, items = newest["user_code"].to_numpy(), task.items.columns[graph.item][newest["item_row"].to_numpy()]
    if task.history is not None:
        before = pl.scan_parquet(task.history).filter(pl.col("before") == 1).sort("user", "item")
        if task.holdout is not None:
            before = before.join(
                pl.scan_parquet(task.holdout).select("user", "item"), on=["user", "item"], how="anti", maintain_order="left"
            )
        encoded = before.select(
            graph.key(graph.user).state.encode(pl.col("user")).alias("user"),
            graph.key(graph.item).state.encode(pl.col("item")).alias("item"),
            _weight(before),
        ).collect(engine="streaming")
        weights = np.concatenate([encoded["weight"].to_numpy(), weights])
        users, items = np.concatenate([encoded["user"].to_numpy(), users]), np.concatenate([encoded["item"].to_numpy(), items])
    is_known = (users >= FIRST) & (items >= FIRST)
    users, items, weights = users[is_known].astype(np.int64), items[is_known].astype(np.int64), weights[is_known]
    if not len(users):
        raise Invalid(
            f"model.family: '{task.model.family}' learns from positives of known users and items, but none exist: lower min_count"
        )
    codes = users * item_count + items
    _, first = np.unique(codes, return_index=True)
    first.sort()
    pairs = LikePairs(users[first], items[first], user_count, item_count, in_order=newest["time"].n_unique() > 1)
    return pairs if (weights == 1).all() else replace(pairs, weights=_largest(codes, weights)[first])


def _largest(codes: NDArray[np.int64], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the largest weight of each row's pair."""
    pairs, pair = np.unique(codes, return_inverse=True)
    largest = np.zeros(len(pairs), np.float32)
    np.maximum.at(largest, pair, weights)
    return largest[pair]


def _weight(rows: pl.LazyFrame) -> pl.Expr:
    """Returns the weights of the rows; 1 if the spec has none."""
    return pl.col("weight") if "weight" in rows.collect_schema() else pl.lit(1, pl.Float32).alias("weight")


def metrics_of_likes(likes: int, seconds: float, parameters: float, epochs: int = 1) -> dict[str, float]:
    return {
        "train.seconds": seconds,
        "train.rows": float(likes),
        "train.rows_per_s": likes * epochs / seconds,
        "train.parameters": parameters,
    }
