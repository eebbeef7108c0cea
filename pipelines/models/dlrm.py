"""The family `dlrm`: inner products of all pairs of embeddings, then hidden layers.

All embeddings have one width. Numbers and vectors go through bottom layers whose last layer has the same width; their output is one more
vector among the embeddings. The hidden layers take each pair's product once, and the bottom layers' output. Without numbers there are no
bottom layers, and the hidden layers take the products alone. With `joined` they also take the embeddings.
"""

from __future__ import annotations

from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.models.deep import Numbers, check_parent, check_same, hidden_layers, layers_of, planned
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.network import Dense, Interact, Join, Network, Node
from pipelines.models.neural.train import train_neural
from pipelines.models.tables import Table, plan_tables
from shared.contracts.families import DlrmParams
from shared.domain.errors import Invalid

_NUMBERS, _BOTTOM = "~numbers", "~bottom"
"""Names of nodes: no feature can have such a name."""


class Dlrm:
    """Implements Family."""

    name = "dlrm"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, DlrmParams)
        parent = load_architecture(task.parent(MODEL)) if task.parent else None
        return train_neural(task, params, plan(task.graph, params, parent))

    def load(self, fetch: Fetch) -> NeuralModel:
        return load_neural(fetch)


def plan(graph: Graph, params: DlrmParams, parent: Architecture | None) -> Architecture:
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    if params.bottom != DlrmParams().bottom and not graph.numbers:
        raise Invalid("model.params: 'bottom' has no effect, because no feature is a number: leave it out")
    if parent is not None:
        check_parent(parent, params)
        check_same("width", params.width, parent.tables[0].width)
        check_same("itself", params.itself, next(node.itself for node in parent.network.nodes if isinstance(node, Interact)))
        joined = any(isinstance(node, Join) and parent.tables[0].column in node.of for node in parent.network.nodes)
        check_same("joined", params.joined, joined)
        if graph.numbers:
            check_same("bottom", params.bottom, layers_of(parent, _BOTTOM)[:-1])
    return planned(graph, params, plan_tables(graph, params.width, pooling=params.pooling), architecture_of, parent)


def architecture_of(tables: tuple[Table, ...], params: DlrmParams, numbers: Numbers = ()) -> Architecture:
    nodes, vectors = _bottom(params, numbers), tuple(table.column for table in tables)
    if nodes:
        vectors = (nodes[-1].name, *vectors)
    nodes.append(Interact("pairs", vectors, params.itself))
    beside = vectors if params.joined else vectors[:1] if numbers else ()
    if beside:
        nodes.append(Join("features", (*beside, "pairs")))
    nodes += hidden_layers(nodes[-1].name, params)
    return Architecture(Dlrm.name, tables, numbers, Network((*nodes, Dense("score", (nodes[-1].name,), 1, "linear"))))


def _bottom(params: DlrmParams, numbers: Numbers) -> list[Node]:
    """Returns the bottom layers, which make one vector of the numbers."""
    if not numbers:
        return []
    nodes: list[Node] = [Join(_NUMBERS, tuple(name for name, _ in numbers))]
    for at, units in enumerate((*params.bottom, params.width)):
        nodes.append(Dense(f"{_BOTTOM}_{at}", (nodes[-1].name,), units))
    return nodes
