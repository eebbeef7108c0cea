"""How wide an embedding is, how large its table gets, and what it may not exceed: known before any training.

A table has one row for each code. Its width follows from the cardinality (T-07) unless the spec says one, and a warm run
keeps its parent's, since vectors can't change their length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.features.graph import Graph
from shared.domain.errors import Invalid

# ONNX files are protobuf messages, which end at 2 GB; the layers above the tables get the rest.
EXPORT_LIMIT = 1_900_000_000


@dataclass(frozen=True)
class Table:
    """One code column of the model: `length` is None for one code a row."""

    column: str
    cardinality: int
    width: int
    length: int | None

    @property
    def size(self) -> int:
        return self.cardinality * self.width * 4


def width_by_rule(cardinality: int) -> int:
    return min(512, max(16, round(1.6 * math.pow(cardinality, 0.56))))


def plan_tables(graph: Graph, width: int | None, parent: Mapping[str, int] | None = None) -> tuple[Table, ...]:
    """The tables of a fitted graph; `parent` gives the widths that a warm run must keep."""
    if parent is not None and width is not None and any(kept != width for kept in parent.values()):
        raise Invalid(f"model.params.width: {width} is not the parent's width: a warm run can't change it, start a full one")
    tables = tuple(
        Table(
            one.column,
            one.state.cardinality,
            parent[one.column] if parent is not None else width or width_by_rule(one.state.cardinality),
            one.length,
        )
        for one in graph.features
    )
    total = sum(table.size for table in tables)
    if total > EXPORT_LIMIT:
        raise Invalid(
            f"model.params.width: the embedding tables take {total / 1e9:.1f} GB; one exported graph holds {EXPORT_LIMIT / 1e9:.1f} GB:"
            " choose a smaller width or a larger min_count"
        )
    return tables


def report(tables: Iterable[Table]) -> list[dict[str, Any]]:
    return [asdict(table) | {"bytes": table.size} for table in tables]
