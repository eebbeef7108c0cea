"""Shared parts of the families that take every feature: hidden layers, layer norms and the checks of a warm run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pipelines.features.graph import Graph
from pipelines.features.operators.vector import Vector
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.network import Dense, Dropout, LayerNorm, Network, Node, Norm
from pipelines.models.tables import Table, check_size
from shared.contracts.families import DeepParams, TwoTowerParams
from shared.domain.errors import Invalid

Numbers = tuple[tuple[str, int | None], ...]
"""Names of the number features, each with its width, or None for a single number."""
Of = Callable[[tuple[Table, ...], Any, Numbers], Architecture]


def hidden_layers(before: str, params: DeepParams) -> list[Node]:
    """Returns hidden layers that start at the node `before`, each with its batch norm and dropout where the parameters ask for them."""
    nodes: list[Node] = []
    for at, units in enumerate(params.layers):
        nodes.append(Dense(f"hidden_{at}", (nodes[-1].name if nodes else before,), units))
        if params.batch_norm:
            nodes.append(Norm(f"norm_{at}", (nodes[-1].name,)))
        if params.dropout:
            nodes.append(Dropout(f"dropout_{at}", (nodes[-1].name,), params.dropout))
    return nodes


def layers_of(architecture: Architecture, kind: str = "hidden") -> tuple[int, ...]:
    return tuple(node.units for node in architecture.network.nodes if isinstance(node, Dense) and node.name.startswith(f"{kind}_"))


def check_parent(parent: Architecture, params: DeepParams) -> None:
    check_same("layers", params.layers, layers_of(parent))
    check_pooling(parent, params.pooling)


def check_pooling(parent: Architecture, wanted: str) -> None:
    for pooling in {table.pooling for table in parent.tables if table.length}:
        check_same("pooling", wanted, pooling)


def check_same(name: str, wanted: Any, before: Any) -> None:
    """Raises Invalid if a parameter differs from the parent's."""
    if wanted != before:
        wanted, before = (list(value) if isinstance(value, tuple) else value for value in (wanted, before))
        raise Invalid(f"model.params.{name}: {wanted} is not the parent's {before}: a warm run cannot change it; start a full run")


def levelled(architecture: Architecture, graph: Graph, params: DeepParams | TwoTowerParams, parent: Architecture | None) -> Architecture:
    """Adds a layer norm to each feature of a `vector` operator, unless the parameters switch it off."""
    made = {feature.name for operator in graph.operators if isinstance(operator, Vector) for feature in operator.features}
    vectors = [name for name, _ in architecture.numbers if name in made]
    if not vectors:
        if not params.layer_norm:
            raise Invalid("model.params: 'layer_norm' has no effect, because the model takes no vector: leave it out")
        return architecture
    if parent is not None:
        check_same("layer_norm", params.layer_norm, any(isinstance(node, LayerNorm) for node in parent.network.nodes))
    return level(architecture, vectors) if params.layer_norm else architecture


def level(architecture: Architecture, vectors: Sequence[str]) -> Architecture:
    """Puts a layer norm of its own between each of these features and the nodes that read it."""
    names = {name: f"~level_{name}" for name in vectors}
    nodes: list[Node] = [LayerNorm(node, (name,)) for name, node in names.items()]
    for node in architecture.network.nodes:
        nodes.append(replace(node, of=tuple(names.get(name, name) for name in node.of)))
        names.pop(node.name, None)  # later nodes read this node under the name
    return replace(architecture, network=Network(tuple(nodes)))


def planned(
    graph: Graph, params: DeepParams, tables: Sequence[Table], architecture_of: Of, parent: Architecture | None = None
) -> Architecture:
    """Plans the architecture; raises Invalid for a parameter without effect and for a model that does not fit."""
    if params.pooling != type(params)().pooling and not any(table.length for table in tables):
        raise Invalid("model.params: 'pooling' has no effect, because no feature has several codes per row: leave it out")
    numbers = tuple((feature.name, feature.width) for feature in graph.numbers)
    architecture = levelled(architecture_of(tuple(tables), params, numbers), graph, params, parent)
    check_size(graph, architecture.size)
    return architecture
