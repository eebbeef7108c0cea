"""The family `mlp`: an embedding for each code feature, joined with the numbers, then hidden ReLU layers and a sigmoid.

Multi-hot columns are averaged or summed over their values; padding (code 0) does not count. Each hidden layer can have batch norm and
dropout.
"""

from __future__ import annotations

from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.models.deep import Numbers, check_parent, hidden_layers, planned
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.neural.architecture import Architecture, load_architecture
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.network import Dense, Join, Network
from pipelines.models.neural.train import train_neural
from pipelines.models.tables import Table, plan_tables
from shared.contracts.families import MlpParams


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
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    if parent is not None:
        check_parent(parent, params)
    widths = {table.column: table.width for table in parent.tables} if parent is not None else None
    return planned(graph, params, plan_tables(graph, params.width, widths, params.pooling), architecture_of, parent)


def architecture_of(tables: tuple[Table, ...], params: MlpParams, numbers: Numbers = ()) -> Architecture:
    joined = Join("features", (*(table.column for table in tables), *(name for name, _ in numbers)))
    nodes = [joined, *hidden_layers(joined.name, params)]
    return Architecture(Mlp.name, tables, numbers, Network((*nodes, Dense("score", (nodes[-1].name,), 1, "linear"))))
