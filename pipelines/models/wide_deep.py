"""The family `wide_deep`: the sum of a linear model's logit (wide) and of a logit from hidden layers over embeddings (deep).

A column has one table for both parts, so that it is looked up once: the first number of a vector is the value's wide weight, which begins
at zero, and the other numbers go into the hidden layers. Several codes per row are summed, unless `pooling` says mean. A cross has a wide
weight per bucket and no deep part, because it only memorises.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pipelines.features.graph import Graph
from pipelines.features.operators.base import plain
from pipelines.features.operators.codes import Cross
from pipelines.features.reading import Reads
from pipelines.models.deep import Numbers, check_parent, check_same, hidden_layers, planned
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.neural.architecture import Architecture, load_architecture, table_path
from pipelines.models.neural.model import NeuralModel, load_neural
from pipelines.models.neural.network import Add, ColumnSelection, Dense, Join, Network, Node, RowSum
from pipelines.models.neural.train import train_neural
from pipelines.models.neural.weights import Weights, begin
from pipelines.models.tables import Table, plan_tables
from shared.contracts.families import WideDeepParams

_WIDE, _DEEP, _NUMBERS = "~wide", "~deep", "~numbers"
"""Names of nodes: no feature can have such a name."""


class WideDeep:
    """Implements Family."""

    name = "wide_deep"
    reads: Reads = "deep"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, WideDeepParams)
        architecture = plan(task.graph, params, load_architecture(task.parent(MODEL)) if task.parent else None)
        first = partial(first_weights, architecture, task.model.train.seed)
        return train_neural(task, params, architecture, first=first)

    def load(self, fetch: Fetch) -> NeuralModel:
        return load_neural(fetch)


def plan(graph: Graph, params: WideDeepParams, parent: Architecture | None) -> Architecture:
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    if parent is not None:
        check_parent(parent, params)
    return planned(graph, params, tables_of(graph, params, parent), architecture_of, parent)


def tables_of(graph: Graph, params: WideDeepParams, parent: Architecture | None = None) -> tuple[Table, ...]:
    """Plans the tables; the padded default width includes the wide weight, and crosses have width 1."""
    crosses = {plain(out) for operator in graph.operators if isinstance(operator, Cross) for out in operator.outputs}
    if parent is not None:
        for width in {table.width - 1 for table in parent.tables if table.width > 1} if params.width else ():
            check_same("width", params.width, width)
        return plan_tables(graph, None, {table.column: table.width for table in parent.tables}, params.pooling)
    tables = plan_tables(graph, params.width and params.width + 1, pooling=params.pooling)
    return tuple(replace(table, width=1) if table.column in crosses else table for table in tables)


def architecture_of(tables: tuple[Table, ...], params: WideDeepParams, numbers: Numbers = ()) -> Architecture:
    """Returns the architecture; a table of width 1 has only the wide part."""
    both, names = [table for table in tables if table.width > 1], tuple(name for name, _ in numbers)
    nodes: list[Node] = [ColumnSelection(f"{_WIDE}_{table.column}", (table.column,), 0, 1) for table in both]
    weights = (*(node.name for node in nodes), *(table.column for table in tables if table.width == 1))
    vectors = [ColumnSelection(f"{_DEEP}_{table.column}", (table.column,), 1, table.width) for table in both]
    nodes += [*vectors, Join(_WIDE, weights), Join(_DEEP, (*(part.name for part in vectors), *names))]
    if numbers:
        nodes.append(Join(_NUMBERS, names))
    hidden = hidden_layers(_DEEP, params)
    nodes += [*hidden, Dense("deep", (hidden[-1].name,), 1, "linear"), RowSum("wide", (_WIDE,))]
    if numbers:
        nodes.append(Dense("linear", (_NUMBERS,), 1, "linear"))
    logits = ("wide", "linear", "deep") if numbers else ("wide", "deep")
    return Architecture(WideDeep.name, tables, numbers, Network((*nodes, Add("score", logits))))


def first_weights(architecture: Architecture, seed: int) -> Weights:
    """Returns first weights with zero wide weights: values without training rows add nothing."""
    weights = begin(architecture, seed)
    for table in architecture.tables:
        weights[table_path(table)][:, 0] = 0
    return weights
