"""The contenders, each as one function from users and rows of the catalogue to scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.graph import Graph
from pipelines.features.raw import item_columns
from pipelines.loaders.batches import Codes, encode_users
from pipelines.models.popularity import Popularity
from shared.serving.signature import OUTPUT, Signature

Ints = NDArray[np.int64]
Scores = NDArray[Any]


class Scorer(Protocol):
    """Scores pairs: `users` are raw keys, `rows` are rows of the catalogue."""

    def __call__(self, users: Ints, rows: Ints) -> Scores: ...


def popularity_scorer(popularity: Popularity) -> Scorer:
    return lambda users, rows: popularity.scores[rows]


def model_scorer(graph: Graph, items: Codes, model: Callable[[Codes], NDArray[np.float32]]) -> Scorer:
    """A model in training's own runtime, on codes made by polars."""
    return lambda users, rows: model({name: column[rows] for name, column in items.items()} | {graph.user: encode_users(graph, users)})


def unit_scorer(model: Path, served: Signature, items: pl.DataFrame) -> Scorer:
    """A served unit on raw columns, as the server would run it."""
    session = onnx_session(model)
    columns = item_columns(items, served)

    def score(users: Ints, rows: Ints) -> Scores:
        raw = {name: column[rows] for name, column in columns.items()} | {served.user: users}
        scores: Scores = session.run([OUTPUT], raw)[0]
        return scores

    return score


def onnx_session(model: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
