"""Who likes what, for the families that learn from likes alone: groups of users with a taste of their own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.inputs.tables import FeatureTable
from pipelines.models.family import Task
from pipelines.models.popularity_baseline import Popularity
from pipelines.training.likes import LikePairs
from shared.contracts.models import Model
from tests.support.feature_graphs import of_keys

LOG = logging.getLogger("test")
USERS, ITEMS, GROUPS = 60, 40, 4


def pairs(seed: int = 1, users: int = USERS, items: int = ITEMS) -> LikePairs:
    """Users like the items of their own group, nearly always."""
    random = np.random.default_rng(seed)
    user, item = (side.ravel() for side in np.meshgrid(np.arange(users), np.arange(items), indexing="ij"))
    liked = random.random(len(user)) < np.where(user % GROUPS == item % GROUPS, 0.7, 0.03)
    order = random.permutation(np.flatnonzero(liked))
    return LikePairs(user[order], item[order], users, items)


def ones(liked: LikePairs) -> NDArray[np.float64]:
    """Who liked what, as a matrix."""
    found = np.zeros((liked.user_count, liked.item_count))
    found[liked.users, liked.items] = 1
    return found


def task(folder: Path, liked: LikePairs, family: str, parent: object = None, **params: object) -> Task:
    """Keys are positions; codes are two more."""
    folder.mkdir(exist_ok=True)
    graph = of_keys(liked.user_count, liked.item_count)
    columns = {"user": liked.users, "item": liked.items, "user_code": (liked.users + 2).astype(np.int32)}
    time = np.arange(len(liked), dtype=float) if liked.in_order else np.zeros(len(liked))
    more = {"item_row": liked.items.astype(np.int32), "label": np.ones(len(liked), np.int8), "time": time}
    if liked.weights is not None:
        more["weight"] = liked.weights
    pl.DataFrame(columns | more).write_parquet(folder / "train.parquet")
    codes = FeatureTable({"item": np.arange(liked.item_count, dtype=np.int32) + 2}, {})
    popularity = Popularity(np.arange(liked.item_count), np.ones(liked.item_count), np.ones(liked.item_count, np.int64))
    model = Model.model_validate({"family": family, "params": params})
    return Task(model, graph, folder / "train.parquet", codes, None, popularity, LOG, parent)  # type: ignore[arg-type]


def recall(scores: NDArray[Any], liked: LikePairs, hidden: LikePairs | None = None, at: int = 10) -> float:
    """How many of each user's likes are among the first ten of what isn't hidden; `scores` are of all users for all items, by position."""
    scores = np.array(scores)
    if hidden is not None:
        scores[hidden.users, hidden.items] = -np.inf
    best = np.argsort(-scores, axis=1)[:, :at]
    return float(np.mean([item in best[user] for user, item in zip(liked.users, liked.items, strict=True)]))
