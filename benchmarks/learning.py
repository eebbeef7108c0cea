"""Training of small neural models inside a benchmark, and the measures of its scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.step import NeuralStep, StepOptions
from pipelines.models.neural.weights import begin

Array = NDArray[Any]


def neural_step(architecture: Architecture, rate: float, seed: int, weights: Any = None) -> NeuralStep:
    weights = begin(architecture, seed) if weights is None else weights
    return NeuralStep(load_framework("tensorflow"), architecture, weights, StepOptions(learning_rate=rate, seed=seed))


def shuffled(columns: Codes, labels: Array, size: int, seed: tuple[int, int]) -> Iterator[TrainingBatch]:
    """The batches of an epoch."""
    order = np.random.default_rng(seed).permutation(len(labels))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        yield TrainingBatch({name: column[rows] for name, column in columns.items()}, labels[rows])


def auc(scores: Array, clicks: Array) -> float:
    """`clicks`: labels, or chances; then it is the mean of labels drawn by them. Equal scores count half."""
    weights = np.concatenate([clicks, 1 - clicks.astype(np.float64)])
    return float(roc_auc_score(np.repeat([1, 0], len(scores)), np.tile(scores, 2), sample_weight=weights))


def log_loss(scores: Array, labels: Array) -> float:
    right = np.where(labels > 0, scores, 1 - scores.astype(np.float64))
    return float(-np.log(np.clip(right, 1e-7, 1)).mean())
