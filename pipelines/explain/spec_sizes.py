"""Feature sizes that the spec determines before any data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature, Operator, plain
from pipelines.features.operators.bucketise import Bucketise
from pipelines.features.operators.categorify import Categorify, MultiHot
from pipelines.features.operators.codes import Cross, OneHot
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.times import Calendar
from pipelines.features.operators.vector import Vector


@dataclass(frozen=True)
class SpecSizes:
    codes: int | None = None
    width: int | None = None
    """For lists and vectors."""
    most: int | None = None
    """Largest list length, if only fitting gives the exact length."""


def spec_sizes(graph: Graph) -> Mapping[str, SpecSizes]:
    """Sizes by feature; the graph need not be fitted on data."""
    sizes: dict[str, SpecSizes] = {}
    for operator in graph.operators:
        sizes |= {feature.name: _sizes_of(operator, feature, sizes) for feature in operator.features}
    return sizes


def _sizes_of(operator: Operator, feature: Feature, before: Mapping[str, SpecSizes]) -> SpecSizes:
    match operator:
        case Calendar():
            return SpecSizes(codes=feature.cardinality)
        case Bucketise() if operator.parts is None:
            return SpecSizes(codes=feature.cardinality)
        case Categorify():
            return SpecSizes(codes=_listed(operator, feature))
        case MultiHot():
            return SpecSizes(codes=_listed(operator, feature), most=operator.column.max_length)
        case Cross():
            several = before[plain(operator.many)] if operator.many else SpecSizes()
            return SpecSizes(feature.cardinality, several.width, several.most)
        case OneHot():
            return SpecSizes(width=before[plain(operator.column)].codes)
        case Vector() | Sequence():
            return SpecSizes(width=feature.width)
        case _:
            return SpecSizes()


def _listed(operator: Categorify | MultiHot, feature: Feature) -> int | None:
    return None if operator.words.rule.values is None else feature.cardinality
