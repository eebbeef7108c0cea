"""The family `two_tower`: hidden layers over the user's features, hidden layers over the item's, and the inner product of both outputs.

A tower takes the key and all other features of its side; the user's tower also sequences of the user's items without a limit of time. No
tower takes other features of the moment or of user and item together, because a vector is the same at all moments. So the model is its own
retriever: export computes item vectors from the catalogue, training computes user vectors from what it knows of each user. Users with only
a key, and unknown users, get the vector that training learned for such users.

Each like is learned against the items of the batch's other likes (`pipelines.models.neural.losses.InBatch`), without rows of label 0.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.arrays import read_arrays
from pipelines.features.columns import FIRST, Side
from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature
from pipelines.features.operators.sequence import Sequence
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes, FeatureTable, Users, placed
from pipelines.models.deep import check_pooling, levelled
from pipelines.models.family import MODEL, Embeddings, Fetch, Fitted, Task
from pipelines.models.neural import plain
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.losses import InBatch, log_chances
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.network import Dense, Dropout, Join, Length, Network, Node, Product, RowSum
from pipelines.models.neural.train import train_neural
from pipelines.models.neural.weights import WEIGHTS, Weights
from pipelines.models.tables import Table, check_size, plan_tables
from shared.contracts.families import TwoTowerParams
from shared.domain.errors import Invalid

QUERIES = "queries.npy"
SIDES: tuple[Side, Side] = ("user", "item")
Floats = NDArray[np.float32]
Numbers = tuple[tuple[str, int | None], ...]


class TwoTowerModel(NeuralModel):
    """Implements Trained."""

    meaning: ClassVar[str] = (
        "rank score of the item among all items for the user, popularity included: only for comparison, without a zero point"
    )

    def __init__(self, architecture: Architecture, weights: Weights, queries: Floats) -> None:
        """`queries` holds a user's vector by code."""
        super().__init__(architecture, weights)
        self.queries = queries

    def save(self, folder: Path) -> dict[str, Path]:
        path = folder / QUERIES
        np.save(path, self.queries, allow_pickle=False)
        return {**super().save(folder), QUERIES: path}

    def embeddings(self, codes: Codes) -> Embeddings:
        return Embeddings(vectors_of(self.architecture, self.weights, "item", codes), self.queries)


class KeyTowers(TwoTowerModel):
    """Two towers that read keys alone; implements ScoresAll."""

    def every(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        scores: Floats = self.queries[users] @ self._items.T
        return scores

    @cached_property
    def _items(self) -> Floats:
        """The item vectors by code."""
        _, items = self.tables
        return vectors_of(self.architecture, self.weights, "item", {items.column: np.arange(items.cardinality, dtype=np.int32)})


class TwoTower:
    """Implements Family."""

    name = "two_tower"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params, graph = task.model.params, task.graph
        assert isinstance(params, TwoTowerParams)
        architecture = plan(graph, params, load_architecture(task.parent(MODEL)) if task.parent else None)
        if left := [feature.name for feature in graph.features if feature.name not in architecture.features]:
            task.log.info("features: left out of both towers features=%s", ",".join(left))
        loss = InBatch(
            vector_of("user"),
            vector_of("item"),
            graph.item,
            log_chances(_likes_by_code(task)),
        )
        fitted = train_neural(task, None, architecture, params.regularisation, loss)
        assert isinstance(fitted.model, NeuralModel)
        weights = fitted.model.weights
        return replace(
            fitted, model=_model(architecture, weights, vectors_of(architecture, weights, "user", known_users(graph, task.users)))
        )

    def load(self, fetch: Fetch) -> TwoTowerModel:
        queries = np.load(fetch(QUERIES), allow_pickle=False)
        return _model(load_architecture(fetch(MODEL)), read_arrays(fetch(WEIGHTS)), queries)


def _model(architecture: Architecture, weights: Weights, queries: Floats) -> TwoTowerModel:
    keys_alone = len(architecture.tables) == len(SIDES) and not architecture.numbers
    return (KeyTowers if keys_alone else TwoTowerModel)(architecture, weights, queries)


def plan(graph: Graph, params: TwoTowerParams, parent: Architecture | None) -> Architecture:
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    if parent is not None:
        check_pooling(parent, params.pooling)
    widths = {table.column: table.width for table in parent.tables} if parent is not None else None
    if widths is not None and params.embedding is not None and set(widths.values()) != {params.embedding}:
        raise Invalid(
            f"model.params.embedding: {params.embedding} is not the parent's width: a warm run cannot change it; start a full run"
        )
    of_sides = [tower_features(graph, side, parent) for side in SIDES]
    names = [[feature.name for feature in features] for features in of_sides]
    tables = _tables(graph, params, widths, [*names[0], *names[1]])
    if params.pooling != TwoTowerParams().pooling and not any(table.length for table in tables):
        raise Invalid(
            "model.params: 'pooling' has no effect, because no feature of a user or an item has several codes per row: leave it out"
        )
    numbers = tuple((feature.name, feature.width) for features in of_sides for feature in features if feature.kind != "code")
    architecture = levelled(architecture_of(tables, numbers, (tuple(names[0]), tuple(names[1])), params), graph, params, parent)
    if parent is not None and _shape(parent) != _shape(architecture):
        raise Invalid(
            "model.params: width, layers, normalise and temperature are not the parent's: a warm run cannot change them; start a full run"
        )
    check_size(graph, architecture.size)
    return architecture


def tower_features(graph: Graph, side: Side, parent: Architecture | None) -> tuple[Feature, ...]:
    """Returns the features that the side's tower takes. A warm run takes only those sequences that its parent has: older releases trained
    without sequences."""
    of_sequences = [feature for sequence in sequences_of(graph) for feature in sequence.features] if side == "user" else []
    return (*graph.side(side), *(feature for feature in of_sequences if parent is None or feature.name in parent.features))


def sequences_of(graph: Graph) -> tuple[Sequence, ...]:
    """Returns the sequences that have no limit of time, and so change only with an interaction of the user."""
    return tuple(operator for operator in graph.operators if isinstance(operator, Sequence) and not operator.bounded)


def _tables(graph: Graph, params: TwoTowerParams, parent: dict[str, int] | None, names: list[str]) -> tuple[Table, ...]:
    planned = {table.column: table for table in plan_tables(graph, params.embedding, pooling=params.pooling)}
    tables = [planned[name] for name in names if name in planned]
    return tuple(tables) if parent is None else tuple(replace(table, width=parent.get(table.column, table.width)) for table in tables)


def architecture_of(
    tables: tuple[Table, ...], numbers: Numbers, names: tuple[tuple[str, ...], tuple[str, ...]], params: TwoTowerParams
) -> Architecture:
    """Returns the architecture; `names` holds the features of the user's tower and of the item's tower."""
    nodes: list[Node] = []
    for side, of in zip(SIDES, names, strict=True):
        nodes.append(Join(f"{side}_features", of))
        for at, units in enumerate(params.layers):
            nodes.append(Dense(f"{side}_hidden_{at}", (nodes[-1].name,), units))
            if params.dropout:
                nodes.append(Dropout(f"{side}_dropout_{at}", (nodes[-1].name,), params.dropout))
        if not params.normalise:
            nodes.append(Dense(vector_of(side), (nodes[-1].name,), params.width, "linear"))
            continue
        nodes.append(Dense(f"{side}_direction", (nodes[-1].name,), params.width, "linear"))
        nodes.append(Length(vector_of(side), (nodes[-1].name,), 1 / params.temperature if side == "user" else 1.0))
    product = Product("product", (vector_of("user"), vector_of("item")))
    return Architecture(TwoTower.name, tables, numbers, Network((*nodes, product, RowSum("score", (product.name,)))), "linear")


def vector_of(side: Side) -> str:
    """Returns the name of the node that gives the side's vector."""
    return f"{side}_vector"


def _shape(architecture: Architecture) -> object:
    """Returns the parts that a warm run cannot change."""
    lengths = [node.length for node in architecture.network.nodes if isinstance(node, Length)]
    return architecture.network.weights(architecture.features), lengths


def vectors_of(architecture: Architecture, weights: Weights, side: Side, columns: Codes) -> Floats:
    """Returns the output of the side's tower."""
    network = architecture.network.towards(vector_of(side))
    names = {name for node in network.nodes for name in node.of}
    tables = tuple(table for table in architecture.tables if table.column in names)
    numbers = tuple(number for number in architecture.numbers if number[0] in names)
    inputs = {table.column: columns[table.column] for table in tables} | {name: columns[name] for name, _ in numbers}
    return plain.outputs(replace(architecture, tables=tables, numbers=numbers, network=network), weights, inputs)


def known_users(graph: Graph, table: FeatureTable | None) -> Codes:
    """Returns user features by code, from each user's last row in the table. Users that are not in the table have only their key and their
    sequence; codes without a user have no values."""
    state = graph.key(graph.user).state
    keys, count = state.values.to_numpy(), state.cardinality
    nobody = int(keys.max(initial=0)) + 1 if keys.max(initial=0) < np.iinfo(np.int64).max else int(keys.min()) - 1
    user_keys = np.full(count, nobody, np.int64)
    user_keys[FIRST : FIRST + len(keys)] = keys
    features = Users(graph, None, None).of(user_keys)
    features[graph.user] = np.arange(count, dtype=np.int32)
    for sequence in sequences_of(graph):
        owners, rows = sequence.table
        order = np.argsort(owners[graph.user].to_numpy())
        places = placed(owners[graph.user].to_numpy()[order], user_keys)
        features[sequence.features[0].name] = rows[np.append(order, len(order))[places]]
    if table is not None:
        last = np.full(count, -1)
        codes = table.columns[graph.user]
        np.maximum.at(last, codes, np.arange(len(codes)))
        there = FIRST + np.flatnonzero(last[FIRST : FIRST + len(keys)] >= 0)
        for name, column in table.columns.items():
            features[name][there] = column[last[there]]
    return features


def _likes_by_code(task: Task) -> NDArray[Any]:
    """Returns the number of training likes of each item, by code."""
    rows = pl.scan_parquet(task.rows).filter(pl.col("label") > 0).group_by("item_row").len().collect(engine="streaming")
    codes = task.items.columns[task.graph.item][rows["item_row"].to_numpy()]
    return np.bincount(codes, weights=rows["len"].to_numpy(), minlength=task.graph.key(task.graph.item).state.cardinality)
