"""Something small that is trained, for tests of the loop: a step in numpy, and rows of a taste that it can learn."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes, FeatureTable
from pipelines.models.family import Task
from pipelines.models.popularity_baseline import fit_popularity
from shared.contracts.models import Model
from tests.support.feature_graphs import of_keys

ROWS, USERS, ITEMS = 6_000, 50, 150
RATE, MOMENTUM = 20.0, 0.8


def write_rows(path: Path, seed: int = 2) -> Path:
    """Whether a user likes an item follows from both; each row is told from others by its time, each pair is there once."""
    random = np.random.default_rng(seed)
    pairs = random.permutation(USERS * ITEMS)[:ROWS]
    user, item = pairs // ITEMS, pairs % ITEMS
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
    frame.write_parquet(path, row_group_size=1000)
    return path


def task(rows: Path, params: Mapping[str, Any] | None = None, **train: Any) -> Task:
    small = {"layers": [16], "width": 8} | dict(params or {})
    model = Model.model_validate({"params": small, "train": {"batch_size": 256, "epochs": 3, "learning_rate": 0.02} | train})
    popularity = fit_popularity(pl.scan_parquet(rows), pl.Series(range(ITEMS)))
    items = FeatureTable({"item": np.arange(ITEMS, dtype=np.int32) + 2}, {})
    return Task(model, of_keys(USERS, ITEMS), rows, items, None, popularity, logging.getLogger("test"))


class Factors:
    """Implements TrainingStep: inner products of vectors through a sigmoid, by gradient descent with momentum."""

    def __init__(self, width: int = 6, seed: int = 1, rate: float = RATE) -> None:
        random = np.random.default_rng(seed)
        self.rate, self.steps = rate, 0
        self.arrays = {name: random.normal(0, 0.4, (count + 2, width)) for name, count in (("user", USERS), ("item", ITEMS))}
        self.arrays |= {f"{name} momentum": np.zeros_like(values) for name, values in list(self.arrays.items())}

    def __call__(self, batch: TrainingBatch) -> float:
        self.steps += 1
        with np.errstate(all="ignore"):
            return self._trained(batch)

    def _trained(self, batch: TrainingBatch) -> float:
        scores = np.clip(self.score(batch.columns).astype(np.float64), 1e-7, 1 - 1e-7)
        error = ((scores - batch.labels) / len(batch))[:, None]
        found = {name: self.arrays[name][batch.columns[name]] for name in ("user", "item")}
        for name, other in (("user", "item"), ("item", "user")):
            gradient = np.zeros_like(self.arrays[name])
            np.add.at(gradient, batch.columns[name], error * found[other])
            momentum = self.arrays[f"{name} momentum"]
            momentum *= MOMENTUM
            momentum -= self.rate * gradient
            self.arrays[name] += momentum
        right = np.where(batch.labels > 0, scores, 1 - scores)
        return float(-np.log(right).mean())

    def score(self, columns: Codes) -> NDArray[np.float32]:
        with np.errstate(all="ignore"):  # one that breaks is to break
            products = (self.arrays["user"][columns["user"]] * self.arrays["item"][columns["item"]]).sum(axis=1)
        return (1 / (1 + np.exp(-np.clip(products, -40, 40)))).astype(np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: values.copy() for name, values in self.arrays.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = {name: np.array(values) for name, values in state.items()}
