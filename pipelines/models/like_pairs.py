"""Input of the families that learn from likes alone: pairs of user and item codes; and the metrics of such a training."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.features.columns import FIRST
from pipelines.models.family import Task
from pipelines.training.likes import LikePairs
from shared.domain.errors import Invalid


def liked_pairs(task: Task) -> LikePairs:
    """Returns the likes of known users for known items, by code, the oldest first; a warm run's history comes first."""
    graph = task.graph
    user_count, item_count = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
    rows = pl.scan_parquet(task.rows).filter(pl.col("label") == 1).sort("time", "user", "item", maintain_order=True)
    newest = rows.select("user_code", "item_row", "time").collect(engine="streaming")
    users, items = newest["user_code"].to_numpy(), task.items.columns[graph.item][newest["item_row"].to_numpy()]
    if task.history is not None:
        before = pl.scan_parquet(task.history).filter(pl.col("before") == 1).sort("user", "item")
        if task.holdout is not None:
            before = before.join(
                pl.scan_parquet(task.holdout).select("user", "item"), on=["user", "item"], how="anti", maintain_order="left"
            )
        codes = before.select(
            graph.key(graph.user).state.encode(pl.col("user")).alias("user"),
            graph.key(graph.item).state.encode(pl.col("item")).alias("item"),
        ).collect(engine="streaming")
        users, items = np.concatenate([codes["user"].to_numpy(), users]), np.concatenate([codes["item"].to_numpy(), items])
    is_known = (users >= FIRST) & (items >= FIRST)
    users, items = users[is_known].astype(np.int64), items[is_known].astype(np.int64)
    if not len(users):
        raise Invalid(
            f"model.family: '{task.model.family}' learns from positives of known users and items, but none exist: lower min_count"
        )
    _, first = np.unique(users * item_count + items, return_index=True)
    first.sort()
    return LikePairs(users[first], items[first], user_count, item_count, in_order=newest["time"].n_unique() > 1)


def metrics_of_likes(likes: int, seconds: float, parameters: float, epochs: int = 1) -> dict[str, float]:
    return {
        "train.seconds": seconds,
        "train.rows": float(likes),
        "train.rows_per_s": likes * epochs / seconds,
        "train.parameters": parameters,
    }
