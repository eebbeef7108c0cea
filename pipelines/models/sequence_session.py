"""`session` with a `sequence` feature: the transformer reads the sequence of each row, in training and in each request.

So an unknown user's answer follows from the items in the request; a known user's from the items known in training, followed by those.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import FIRST, NULL
from pipelines.features.graph import Graph
from pipelines.features.operators.sequence import Sequence
from pipelines.inputs.tables import Codes
from pipelines.models.attention import plain
from pipelines.models.attention.item_features import ItemFeatures, read_features, vectors_of
from pipelines.models.attention.lowered import lower
from pipelines.models.attention.shape import Shape, Weights, check_weights
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import MODEL, Embeddings, Fetch
from pipelines.models.neural.weights import WEIGHTS
from pipelines.models.tables import Table
from shared.contracts.families import SessionParams
from shared.domain.errors import BadData, Invalid

QUERIES = "queries.npy"
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class SequenceSession(LowersExternalWeights):
    """Implements Trained; `queries` holds the transformer's output for each user's newest items at training time, by code."""

    family: str
    user: str
    item: str
    sequence: str
    shape: Shape
    weights: Weights
    queries: Floats
    features: ItemFeatures | None = None

    meaning: ClassVar[str] = "rank score of the item among all items as the next item: only for comparison, without a zero point"
    recent_use: ClassVar[str] = "recent likes follow the sequence of the training; the transformer reads it again"

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Table(self.item, self.shape.items, self.shape.width + 1, None),)

    def save(self, folder: Path) -> dict[str, Path]:
        paths = {name: folder / name for name in (MODEL, QUERIES)}
        document = {"version": 1, "family": self.family, "user": self.user, "item": self.item, "sequence": self.sequence}
        document |= document_of(self.shape, self.features)
        paths[MODEL].write_text(json.dumps(document, indent=1))
        np.save(paths[QUERIES], self.queries, allow_pickle=False)
        return {**paths, WEIGHTS: write_arrays(folder / WEIGHTS, self.weights)}

    def score(self, columns: Codes) -> Floats:
        return scores_of(self.shape, self.weights, columns[self.sequence], self._vectors(columns))

    def lower_beside(self, beside: ExternalWeights) -> Any:
        return lower(self.family, self.item, self.sequence, self.shape, self.weights, self.features, beside)

    def embeddings(self, codes: Codes) -> Embeddings:
        return Embeddings(self._vectors(codes), user_vectors(self.queries))

    def _vectors(self, columns: Codes) -> Floats:
        return vectors_of(self.weights, self.features, self.item, columns)


def user_vectors(queries: Floats) -> Floats:
    """Adds a column of ones, by which the inner product with an item's vector includes the item's level."""
    return np.concatenate([queries, np.ones((len(queries), 1), np.float32)], axis=1)


def document_of(shape: Shape, features: ItemFeatures | None) -> dict[str, Any]:
    """Returns the part of model.json that `read_transformer` reads."""
    document: dict[str, Any] = {"transformer": asdict(shape)}
    return document if features is None else document | {"features": asdict(features)["features"]}


def read_transformer(fetch: Fetch, document: dict[str, Any]) -> tuple[Shape, Weights, ItemFeatures | None]:
    """Reads the sizes, weights and item features of a model; `document` is the parsed model.json."""
    shape, weights = Shape(**document["transformer"]), read_arrays(fetch(WEIGHTS))
    check_weights(shape, weights)
    return shape, weights, read_features(document["features"]) if "features" in document else None


def load_reader(fetch: Fetch, document: dict[str, Any]) -> SequenceSession:
    """Loads a model with a `sequence` feature; `document` is the parsed model.json."""
    shape, weights, features = read_transformer(fetch, document)
    queries = np.load(fetch(QUERIES), allow_pickle=False)
    if queries.ndim != 2 or queries.shape[1] != shape.width:
        raise BadData(f"{QUERIES}: does not match model.json: the files are of different models: copy or train the model again")
    family, user, item, sequence = (document[name] for name in ("family", "user", "item", "sequence"))
    return SequenceSession(family, user, item, sequence, shape, weights, queries, features)


def read_sequence(graph: Graph, params: SessionParams) -> Sequence | None:
    """Returns the graph's `sequence` feature, or None; raises Invalid if its settings do not fit the family."""
    sequence = next((operator for operator in graph.operators if isinstance(operator, Sequence)), None)
    if sequence is None:
        return None
    if sequence.reverse:
        raise Invalid("features: sequence.reverse: 'session' reads the oldest first: leave it out")
    if params.length not in (SessionParams().length, sequence.length):
        raise Invalid(f"model.params.length: the sequence feature sets the length to {sequence.length}: leave it out")
    return sequence


def newest_by_code(graph: Graph, sequence: Sequence) -> Ints:
    """Returns the newest items by user code, as of training, whatever the window."""
    users = graph.key(graph.user).state
    keys, rows = sequence.table
    rows = rows[:-1]
    if sequence.bounded:  # rows have the newest first
        counts = (rows != NULL).sum(axis=1)[:, None]
        steps = np.arange(sequence.length)[None, :]
        rows = np.where(steps < counts, np.take_along_axis(rows, np.maximum(counts - 1 - steps, 0), axis=1), NULL).astype(np.int32)
    sequences = np.full((users.cardinality, sequence.length), NULL, np.int32)
    codes = users.coded(keys.to_series(0)) if len(keys) else np.empty(0, np.int32)
    sequences[codes[codes >= FIRST]] = rows[codes >= FIRST]
    return sequences


def queries_of(shape: Shape, weights: Weights, sequences: Ints) -> Floats:
    """Returns the transformer's output for each sequence; the empty sequence is computed once."""
    counts = (sequences != NULL).sum(axis=1)
    queries = np.empty((len(sequences), shape.width), np.float32)
    order = np.argsort(counts, kind="stable")
    alone = order[counts[order] > 0]
    queries[counts == 0] = plain.states(shape, weights, np.full((1, shape.length), NULL, np.int32))
    queries[alone] = plain.states(shape, weights, sequences[alone])
    return queries


def scores_of(shape: Shape, weights: Weights, sequences: Ints, vectors: Floats) -> Floats:
    """Returns a score for each row of `vectors`, the vectors of items; each distinct sequence is computed once."""
    begins = np.append(True, (sequences[1:] != sequences[:-1]).any(axis=1))[: len(sequences)]
    distinct, place = np.unique(sequences[begins], axis=0, return_inverse=True)
    queries = queries_of(shape, weights, distinct)[place[np.cumsum(begins) - 1]]
    scores: Floats = np.einsum("nd,nd->n", queries, vectors[:, :-1]) + vectors[:, -1]
    return scores
