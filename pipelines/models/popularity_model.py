"""The family `popularity`: an item's positives, the newest counting most, as a share of the most popular item's; the same for every user.

A safe first version, and the smallest: one gather in the served graph. Scores are looked up by the item's code, so items with the code of
the unknown (never seen, or less often than `min_count`) share the mean of their counts.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.tables import Table, check_size

SCORES = "scores.npy"


@dataclass(frozen=True)
class CountModel:
    """Implements Trained."""

    meaning: ClassVar[str] = "the item's positives, faded by age, as a share of the most popular item's: the same for every user"

    item: str
    by_code: NDArray[np.float32]

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Table(self.item, len(self.by_code), 1, None),)

    def save(self, folder: Path) -> dict[str, Path]:
        described, scores = folder / MODEL, folder / SCORES
        described.write_text(json.dumps({"version": 1, "family": PopularityFamily.name, "item": self.item}, indent=1))
        np.save(scores, self.by_code, allow_pickle=False)
        return {MODEL: described, SCORES: scores}

    def score(self, columns: Codes) -> NDArray[np.float32]:
        return self.by_code[columns[self.item]]

    def every(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Implements ScoresAll."""
        return np.broadcast_to(self.by_code, (len(users), len(self.by_code)))

    def lower(self) -> Any:
        build = OnnxBuilder()
        build.node("Gather", build.initializer("scores/by_code", self.by_code), build.input(self.item, "INT32", "N"), output="score")
        return build.model("popularity", tensor_info("score", "FLOAT", "N"))

    def embeddings(self, codes: Codes) -> None:
        """Returns None for popularity: the order is the same for every user."""


class PopularityFamily:
    """Implements Family."""

    name = "popularity"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        started = time.monotonic()
        codes, counts = task.items.columns[task.graph.item], task.popularity.scores
        cardinality = task.graph.key(task.graph.item).state.cardinality
        check_size(task.graph, cardinality * 4, memory=task.memory)
        totals = np.bincount(codes, weights=counts, minlength=cardinality)
        means = totals / np.maximum(np.bincount(codes, minlength=cardinality), 1)
        by_code = (means / max(float(means.max()), 1.0)).astype(np.float32)
        metrics = {"train.seconds": time.monotonic() - started, "train.parameters": float(cardinality)}
        return Fitted(CountModel(task.graph.item, by_code), metrics)

    def load(self, fetch: Fetch) -> CountModel:
        return CountModel(json.loads(fetch(MODEL).read_text())["item"], np.load(fetch(SCORES), allow_pickle=False))
