"""How a version reads an item that only the catalogue has: the attribute of each of its inputs, as in shared.contracts.items_table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pipelines.features.columns import Raw
from pipelines.features.graph import Graph
from shared.contracts.items_table import AttributeInput, NewItems
from shared.domain.attributes import Kind
from shared.serving.signature import Signature


def new_items(graph: Graph, served: Signature, kinds: Mapping[str, Kind], since: datetime) -> NewItems:
    """`kinds` has the attributes that columns of the items table become. Values that a version has fitted, or that are extracted from
    texts, are unknown for a new item."""
    raws = {column.name: column for column in graph.raws("items")}
    names = [model_input.name for model_input in served.side("item") if model_input.name != served.item]
    sources = {name: _attribute(raws[name], kinds) if name in raws else None for name in names}
    return NewItems(
        since=since,
        inputs=tuple(source for source in sources.values() if source is not None),
        unknown=tuple(name for name, source in sources.items() if source is None),
    )


def _attribute(column: Raw, kinds: Mapping[str, Kind]) -> AttributeInput | None:
    """Returns None if no attribute has the column's values. Vectors are left out: attributes have no long lists."""
    name = column.source or column.name
    expected: Kind = "text" if column.kind == "string" else "number"
    if column.many and column.separator is None:
        expected = "texts" if expected == "text" else "numbers"
    elif column.many:
        expected = "text"
    is_vector = column.many and column.kind == "float32"
    if is_vector or column.pattern is not None or kinds.get(name) != expected:
        return None
    return AttributeInput(input=column.name, attribute=name, separator=column.separator)
