"""What families have in common that take every feature: hidden layers by their parameters, and what a warm run can't change of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.features.graph import Graph
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.network import Dense, Dropout, Node, Norm
from pipelines.models.tables import Table, check_size
from shared.contracts.families import DeepParams
from shared.domain.errors import Invalid

Numbers = tuple[tuple[str, int | None], ...]
"""Features of numbers, and how long those are that are vectors."""
Of = Callable[[tuple[Table, ...], Any, Numbers], Architecture]


def hidden_layers(before: str, params: DeepParams) -> list[Node]:
    """From the node `before` on; batch norm and dropout may follow each of them."""
    nodes: list[Node] = []
    for at, units in enumerate(params.layers):
        nodes.append(Dense(f"hidden_{at}", (nodes[-1].name if nodes else before,), units))
        if params.batch_norm:
            nodes.append(Norm(f"norm_{at}", (nodes[-1].name,)))
        if params.dropout:
            nodes.append(Dropout(f"dropout_{at}", (nodes[-1].name,), params.dropout))
    return nodes


def layers_of(architecture: Architecture, kind: str = "hidden") -> tuple[int, ...]:
    return tuple(one.units for one in architecture.network.nodes if isinstance(one, Dense) and one.name.startswith(f"{kind}_"))


def check_parent(parent: Architecture, params: DeepParams) -> None:
    check_same("layers", params.layers, layers_of(parent))
    check_pooling(parent, params.pooling)


def check_pooling(parent: Architecture, wanted: str) -> None:
    for pooling in {one.pooling for one in parent.tables if one.length}:
        check_same("pooling", wanted, pooling)


def check_same(name: str, wanted: Any, before: Any) -> None:
    """Of a parameter, that it is the parent's."""
    if wanted != before:
        wanted, before = (list(one) if isinstance(one, tuple) else one for one in (wanted, before))
        raise Invalid(f"model.params.{name}: {wanted} is not the parent's {before}: a warm run can't change it, start a full one")


def planned(graph: Graph, params: DeepParams, tables: Sequence[Table], architecture_of: Of) -> Architecture:
    """Refused where a parameter would have no effect, and what couldn't be exported."""
    if params.pooling != type(params)().pooling and not any(one.length for one in tables):
        raise Invalid("model.params: 'pooling' has no effect: no feature has several codes a row: leave it out")
    architecture = architecture_of(tuple(tables), params, tuple((one.name, one.width) for one in graph.numbers))
    check_size(graph, architecture.size)
    return architecture
