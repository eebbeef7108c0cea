"""The family `mlp`: an embedding for each feature of codes beside the numbers as they are, then hidden ReLU layers and a sigmoid.

Multi-hot columns are averaged over their values, or added up; padding (code 0) doesn't count. Batch norm and dropout may follow each
hidden layer.
"""

from __future__ import annotations

from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.network import Dense, Dropout, Join, Network, Node, Norm
from pipelines.models.neural.train import train_neural
from pipelines.models.tables import Table, check_size, plan_tables
from shared.contracts.families import MlpParams
from shared.domain.errors import Invalid


class Mlp:
    """Implements Family."""

    name = "mlp"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, MlpParams)
        parent = load_architecture(task.parent(MODEL)) if task.parent else None
        return train_neural(task, params, plan(task.graph, params, parent))

    def load(self, fetch: Fetch) -> NeuralModel:
        return load_neural(fetch)


def plan(graph: Graph, params: MlpParams, parent: Architecture | None) -> Architecture:
    """What will be trained; refused here, before training, where it couldn't be exported or isn't as the parent's."""
    if parent is not None and (before := layers_of(parent)) != params.layers:
        raise Invalid(
            f"model.params.layers: {list(params.layers)} is not the parent's {list(before)}: a warm run can't change it, start a full one"
        )
    if parent is not None and (others := {one.pooling for one in parent.tables if one.length} - {params.pooling}):
        raise Invalid(
            f"model.params.pooling: {params.pooling} is not the parent's {others.pop()}: a warm run can't change it, start a full one"
        )
    widths = {table.column: table.width for table in parent.tables} if parent is not None else None
    tables = plan_tables(graph, params.width, widths, params.pooling)
    if params.pooling != MlpParams().pooling and not any(one.length for one in tables):
        raise Invalid("model.params: 'pooling' has no effect: no feature has several codes a row: leave it out")
    architecture = architecture_of(tables, params, tuple((one.name, one.width) for one in graph.numbers))
    check_size(graph, architecture.size)
    return architecture


def architecture_of(tables: tuple[Table, ...], params: MlpParams, numbers: tuple[tuple[str, int | None], ...] = ()) -> Architecture:
    nodes: list[Node] = [Join("features", (*(one.column for one in tables), *(name for name, _ in numbers)))]
    for at, units in enumerate(params.layers):
        nodes.append(Dense(f"hidden_{at}", (nodes[-1].name,), units))
        if params.batch_norm:
            nodes.append(Norm(f"norm_{at}", (nodes[-1].name,)))
        if params.dropout:
            nodes.append(Dropout(f"dropout_{at}", (nodes[-1].name,), params.dropout))
    return Architecture(Mlp.name, tables, numbers, Network((*nodes, Dense("score", (nodes[-1].name,), 1, "linear"))))


def layers_of(architecture: Architecture) -> tuple[int, ...]:
    return tuple(one.units for one in architecture.network.nodes if isinstance(one, Dense))[:-1]
