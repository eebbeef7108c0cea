"""A model family: the one seam between the stages and the models.

The stages know what is said here and no family by name. A family trains on codes, gives a model that scores in training's own
runtime, and lowers that model to ONNX with the codes as inputs; export puts the feature graph in front of it.
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
from pipelines.inputs.tables import Catalogue, Codes
from pipelines.models.popularity_baseline import Popularity
from pipelines.models.tables import Table
from pipelines.training.checkpoints import Keeping
from pipelines.training.ranks import Rank
from shared.contracts.models import Model
from shared.contracts.retraining import NewRows

Fetch = Callable[[str], Path]
MODEL = "model.json"
"""What every family publishes: its name under `family`, and whatever it needs to build the model again."""


@dataclass(frozen=True)
class Task:
    """What a family trains on. `items` and `users` are features row by row (users: None where only the key is known); `rows` is
    train.parquet, `popularity` what was counted in it.

    `parent` fetches the files of the run that a warm run starts from: one of the same family; `history`, of a warm run
    alone, is every pair known so far, of which its rows are the newest.
    """

    model: Model
    graph: Graph
    rows: Path
    items: Catalogue
    users: Catalogue | None
    popularity: Popularity
    log: logging.Logger
    parent: Fetch | None = None
    history: Path | None = None
    memory: int | None = None
    """Bytes that the whole of it may take, where the spec says."""
    keeping: Keeping | None = None
    """Where a training that takes long keeps what it can go on from."""
    rank: Rank | None = None
    """Which of several processes this is."""
    new_rows: NewRows = "mean"
    """Of a warm run: where vectors of codes begin that the parent didn't know (pipelines.models.new_row_init)."""
    holdout: Path | None = None
    """Of a warm run: pairs of its history that nobody has trained on, and nobody is to, since what is forgotten is told by them."""


@dataclass(frozen=True)
class Embeddings:
    """What retrieves: a user's query vector meets an item's vector as an inner product."""

    vectors: NDArray[np.float32]
    """One for each row of the catalogue."""
    queries: NDArray[np.float32]
    """One for each code of the user."""


class Trained(Protocol):
    """A model in training's own runtime."""

    @property
    def meaning(self) -> str:
        """What its score says, for people."""

    @property
    def tables(self) -> Sequence[Table]:
        """What it looks up by code."""

    def save(self, folder: Path) -> dict[str, Path]:
        """Writes what `load` needs, `model.json` among it; arrays and JSON only."""

    def score(self, columns: Codes) -> NDArray[np.float32]:
        """One score a row."""

    def lower(self) -> Any:
        """The ONNX model: inputs are features, named as themselves, those that it looks at: int32 codes and float32 numbers; one output, a
        float32 score a row."""

    def embeddings(self, codes: Codes) -> Embeddings | None:
        """None where no inner product of a user's vector and an item's stands for the score."""


@runtime_checkable
class ScoresAll(Protocol):
    """A model that scores users against the whole catalogue faster than pair by pair: it looks at the keys alone. A model whose
    layers still run for each pair says `pairwise = True`: `evaluate.pairs` bounds its users."""

    def every(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """[users, codes of the item], by codes of the user: what `score` says of each pair, up to rounding."""


@dataclass(frozen=True)
class Fitted:
    model: Trained
    metrics: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None
    """`training.json`, of a family that takes steps."""


class Family(Protocol):
    """`name` is what the spec calls it: `shared.contracts.spec.Model.FAMILIES` holds its parameters."""

    name: str
    reads: Reads
    """What it learns from: etl's graph, and so the served unit, hold that and no more (pipelines.features.reading)."""

    def train(self, task: Task) -> Fitted:
        """Invalid, before anything is trained, for what can't be served in the end."""

    def load(self, fetch: Fetch) -> Trained:
        """What `save` has written, without what training alone needs."""
