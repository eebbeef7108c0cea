"""The family `deepfm`: a factorisation machine and hidden layers over the same embeddings.

`wide_deep` with one more logit: the sum of the inner products of all pairs of embeddings. With the weights of the values, it is a
factorisation machine. Numbers have a linear weight and go into the hidden layers; crosses have only weights.
"""

from __future__ import annotations

from functools import partial

from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.models import wide_deep
from pipelines.models.deep import Numbers, check_parent, planned
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.network import Add, ColumnSelection, Interact, Network, RowSum
from pipelines.models.neural.train import train_neural
from pipelines.models.tables import Table
from shared.contracts.families import DeepFmParams


class DeepFm:
    """Implements Family."""

    name = "deepfm"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, DeepFmParams)
        architecture = plan(task.graph, params, load_architecture(task.parent(MODEL)) if task.parent else None)
        first = partial(wide_deep.first_weights, architecture, task.model.train.seed)
        return train_neural(task, params, architecture, first=first)

    def load(self, fetch: Fetch) -> NeuralModel:
        return load_neural(fetch)


def plan(graph: Graph, params: DeepFmParams, parent: Architecture | None) -> Architecture:
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    if parent is not None:
        check_parent(parent, params)
    return planned(graph, params, wide_deep.tables_of(graph, params, parent), architecture_of, parent)


def architecture_of(tables: tuple[Table, ...], params: DeepFmParams, numbers: Numbers = ()) -> Architecture:
    *nodes, score = wide_deep.architecture_of(tables, params, numbers).network.nodes
    vectors = tuple(node.name for node in nodes if isinstance(node, ColumnSelection) and node.start)
    machine = Interact("pairs", vectors), RowSum("machine", ("pairs",))
    return Architecture(DeepFm.name, tables, numbers, Network((*nodes, *machine, Add("score", (*score.of, "machine")))))
