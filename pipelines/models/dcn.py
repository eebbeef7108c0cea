"""The family `dcn` (DCN-v2): cross layers beside hidden layers, over embeddings and numbers.

A cross layer multiplies the joined inputs, number by number, with a linear layer of the last cross layer's output, and adds that output.
So each layer adds interactions of one more input. The matrix of the linear layer is full.
"""

from __future__ import annotations

from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.models.deep import Numbers, check_parent, check_same, hidden_layers, layers_of, planned
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.network import Add, Dense, Join, Network, Node, Product
from pipelines.models.neural.train import train_neural
from pipelines.models.tables import Table, plan_tables
from shared.contracts.families import DcnParams


class Dcn:
    """Implements Family."""

    name = "dcn"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, DcnParams)
        parent = load_architecture(task.parent(MODEL)) if task.parent else None
        return train_neural(task, params, plan(task.graph, params, parent))

    def load(self, fetch: Fetch) -> NeuralModel:
        return load_neural(fetch)


def plan(graph: Graph, params: DcnParams, parent: Architecture | None) -> Architecture:
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    if parent is not None:
        check_parent(parent, params)
        check_same("crosses", params.crosses, len(layers_of(parent, "cross")))
    widths = {table.column: table.width for table in parent.tables} if parent is not None else None
    return planned(graph, params, plan_tables(graph, params.width, widths, params.pooling), architecture_of, parent)


def architecture_of(tables: tuple[Table, ...], params: DcnParams, numbers: Numbers = ()) -> Architecture:
    nodes: list[Node] = [Join("features", (*(table.column for table in tables), *(name for name, _ in numbers)))]
    width, last = sum(table.width for table in tables) + sum(size or 1 for _, size in numbers), "features"
    for at in range(params.crosses):
        nodes += [Dense(f"cross_{at}", (last,), width, "linear"), Product(f"~product_{at}", ("features", f"cross_{at}"))]
        nodes.append(Add(f"~crossed_{at}", (f"~product_{at}", last)))
        last = nodes[-1].name
    hidden = hidden_layers("features", params)
    both = Join("both", (last, hidden[-1].name))
    return Architecture(Dcn.name, tables, numbers, Network((*nodes, *hidden, both, Dense("score", ("both",), 1, "linear"))))
