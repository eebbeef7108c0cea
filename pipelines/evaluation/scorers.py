"""The contenders as functions from users and catalogue rows to scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.eval_pairs import EvalPairs, RawColumns
from pipelines.inputs.tables import Codes
from pipelines.inputs.version_values import PublishedValues
from pipelines.models.family import ScoresAll, Trained
from pipelines.models.popularity_baseline import Popularity
from shared.serving.external import refuse_others
from shared.serving.signature import OUTPUT, Signature
from shared.serving.tensors import tensors

Ints = NDArray[np.int64]
Scores = NDArray[Any]


class Scorer(Protocol):
    """Scores pairs: `users` are raw keys, `rows` are rows of the catalogue."""

    def __call__(self, users: Ints, rows: Ints) -> Scores: ...


class Every(Protocol):
    """Scores users, by key, over the whole catalogue: [users, rows]."""

    def __call__(self, users: Ints) -> Scores: ...


def popularity_scorer(popularity: Popularity) -> Scorer:
    return lambda users, rows: popularity.scores[rows]


def model_scorer(meetings: EvalPairs, model: Callable[[Codes], NDArray[np.float32]]) -> Scorer:
    """Scores with a model in training's own runtime, on features from polars."""
    return lambda users, rows: model(meetings.features(users, rows))


def model_every(meetings: EvalPairs, model: Trained) -> Every | None:
    """Returns None if the model scores pair by pair."""
    if not isinstance(model, ScoresAll):
        return None
    graph, every = meetings.graph, model.every
    codes = meetings.items.columns[graph.item].astype(np.int64)
    return lambda users: take_columns(every(meetings.users.of(users)[graph.user]), codes)


def is_pairwise(model: Trained) -> bool:
    """Returns whether each pair of a user and an item needs its own computation."""
    return not isinstance(model, ScoresAll) or getattr(model, "pairwise", False)


def take_columns(scores: Scores, columns: Ints) -> Scores:
    """Copies columns row by row: several times faster than indexing all rows at once."""
    copy = np.empty((len(scores), len(columns)), scores.dtype)
    for row, out in zip(scores, copy, strict=True):
        np.take(row, columns, out=out, mode="clip")
    return copy


def unit_scorer(model: Path, served: Signature, raw_columns: RawColumns, own: PublishedValues | None = None) -> Scorer:
    """Scores with a served unit on raw columns, as the server does; `own` holds the values published with the unit."""
    refuse_others(model, model.with_name(served.weights).stat().st_size if served.weights else None)
    session = onnx_session(model)
    ask = raw_columns.of(served, own)

    def score(users: Ints, rows: Ints) -> Scores:
        scores: Scores = session.run([OUTPUT], tensors(served, ask(users, rows)))[0]
        return scores

    return score


def unit_answers(model: Path, served: Signature, samples: Mapping[str, NDArray[Any]]) -> Scores:
    """Returns the scores of a served unit for given inputs."""
    inputs = tensors(served, {model_input.name: samples[model_input.name] for model_input in served.inputs})
    scores: Scores = onnx_session(model).run([OUTPUT], inputs)[0]
    return scores


def onnx_session(model: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
