"""Training rows whose labels follow from user and item, and the task of training on them: for tests of validation while training."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.inputs.tables import FeatureTable
from pipelines.models.family import Task
from pipelines.models.popularity_baseline import fit_popularity
from shared.contracts.models import Model
from tests.support.feature_graphs import of_keys

ROWS, USERS, ITEMS = 6_000, 50, 40


def write_rows(folder: Path) -> Path:
    """A user likes an item by both their numbers. The time of each row is unique."""
    random = np.random.default_rng(2)
    user, item = random.integers(0, USERS, ROWS), random.integers(0, ITEMS, ROWS)
    frame = pl.DataFrame(
        {
            "user": user,
            "item": item,
            "time": np.arange(ROWS, dtype=np.float64),
            "label": (user % 4 == item % 4).astype(np.int8),
            "user_code": (user + 2).astype(np.int32),
            "item_row": item.astype(np.int32),
        }
    )
    frame.write_parquet(folder / "train.parquet", row_group_size=1000)
    return folder / "train.parquet"


def training_task(rows: Path, **train: object) -> Task:
    model = Model.model_validate(
        {"params": {"layers": [16], "width": 8}, "train": {"batch_size": 256, "epochs": 3, "learning_rate": 0.02} | train}
    )
    popularity = fit_popularity(pl.scan_parquet(rows), pl.Series(range(ITEMS)))
    items = FeatureTable({"item": np.arange(ITEMS, dtype=np.int32) + 2}, {})
    return Task(model, of_keys(USERS, ITEMS), rows, items, None, popularity, logging.getLogger("test"))
