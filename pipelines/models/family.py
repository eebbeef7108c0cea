"""The interface of model families: the stages use nothing else of a model.

A family trains on codes and returns a model that scores in training's own runtime and lowers to ONNX with the codes as inputs; export puts
the feature graph in front.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes, FeatureTable
from pipelines.models.popularity_baseline import Popularity
from pipelines.models.tables import Table
from pipelines.training.calibration import UNCALIBRATED, LogitLine
from pipelines.training.checkpoints import CheckpointStore
from pipelines.training.ranks import Rank
from shared.contracts.models import Model
from shared.contracts.retraining import NewRows

Fetch = Callable[[str], Path]
MODEL = "model.json"
"""A file that every family publishes: the family's name under `family`, and all values that `load` needs."""


@dataclass(frozen=True)
class Task:
    """Inputs of a training.

    `items` and `users` are features row by row (users: None if only the key is known); `rows` is train.parquet, `popularity` its counts.
    `parent` fetches the files of the run that a warm run starts from, always of the same family. `history` is set in a warm run only: all
    pairs known so far, of which `rows` are the newest.
    """

    model: Model
    graph: Graph
    rows: Path
    items: FeatureTable
    users: FeatureTable | None
    popularity: Popularity
    log: logging.Logger
    parent: Fetch | None = None
    history: Path | None = None
    memory: int | None = None
    """Bytes that training may take in total, if the spec sets a limit."""
    keeping: CheckpointStore | None = None
    """Where a long training saves its checkpoints."""
    rank: Rank | None = None
    """The rank of this process in a training of several processes."""
    new_rows: NewRows = "mean"
    """In a warm run: how the vectors of new codes begin (pipelines.models.new_row_init)."""
    holdout: Path | None = None
    """In a warm run: pairs of the history that no training may use, because they measure how much the model forgets."""
    ranked: bool = True
    """Whether the model must rank a catalogue. If not, rows with enough given negatives get no sampled ones."""
    negatives: int | None = None
    """In a warm run: the parent's number of sampled negatives for each positive."""
    calibration: LogitLine = UNCALIBRATED
    """In a refit: the calibration of the candidate, because a refit holds no rows out to find its own."""


@dataclass(frozen=True)
class Embeddings:
    """Vectors for retrieval: the inner product of a user's query vector and an item's vector."""

    vectors: NDArray[np.float32]
    """A vector for each row of the catalogue."""
    queries: NDArray[np.float32]
    """A query vector for each user code."""


class Trained(Protocol):
    """A trained model in training's own runtime."""

    @property
    def meaning(self) -> str:
        """Describes for people what the score means."""

    @property
    def tables(self) -> Sequence[Table]:
        """Returns the tables that the model looks up by code."""

    def save(self, folder: Path) -> dict[str, Path]:
        """Writes the files that `load` needs, including `model.json`; arrays and JSON only."""

    def score(self, columns: Codes) -> NDArray[np.float32]:
        """Returns a score for each row."""

    def lower(self) -> Any:
        """Returns the ONNX model. Inputs are features by name: int32 codes and float32 numbers. The output is a float32 score per row."""

    def embeddings(self, codes: Codes) -> Embeddings | None:
        """Returns None if the score is not an inner product of a user's and an item's vector."""


@runtime_checkable
class ScoresAll(Protocol):
    """A model of keys alone that scores users against the whole catalogue faster than pair by pair.

    A model whose layers still run for each pair sets `pairwise = True`: then `evaluate.pairs` bounds the number of users.
    """

    def every(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Returns [users, item codes] for these user codes: the scores of `score`, up to rounding."""


@dataclass(frozen=True)
class Fitted:
    model: Trained
    metrics: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None
    """`training.json`, for a family that trains in steps."""


class Family(Protocol):
    """A model family; `name` is its name in specs, and `shared.contracts.models.Model.FAMILIES` holds its parameters."""

    name: str
    reads: Reads
    """The features that the family learns from: the graph of etl, and so the served unit, has no others (pipelines.features.reading)."""

    def train(self, task: Task) -> Fitted:
        """Trains; raises Invalid before training for a model that could not be served."""

    def load(self, fetch: Fetch) -> Trained:
        """Loads the files of `save`, without the parts that only training needs."""
