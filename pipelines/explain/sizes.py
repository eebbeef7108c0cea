"""Sizes of a model's embedding tables, and the bytes that a row reads from them, before training.

A lookup of n values reads n x (width x 4 + 8) bytes: the vectors, and an 8-byte key for each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.explain.fitting import ExplainedFit
from pipelines.explain.spec_sizes import spec_sizes
from pipelines.features.graph import Graph
from pipelines.features.operators.sequence import Sequence
from pipelines.models.tables import KEY, PRECISION, plan_tables
from pipelines.models.wide_deep import tables_of
from shared.contracts.families import (
    BlendParams,
    DeepParams,
    EaseParams,
    ItemKnnParams,
    MfParams,
    NeumfParams,
    Params,
    SessionParams,
    TransitionsParams,
    TwoTowerParams,
    WideDeepParams,
)

ALIGNED = 16
"""Preferred multiple of a vector's size, in bytes."""


@dataclass(frozen=True)
class Embedding:
    """Embedding table of a feature. None means unknown before fitting."""

    feature: str
    codes: int | None
    width: int | None
    values: float | None
    """Values per row: counted, else the largest possible number."""

    @property
    def size(self) -> int | None:
        return None if self.codes is None or self.width is None else self.codes * self.width * PRECISION

    @property
    def lookup(self) -> float | None:
        return None if self.width is None or self.values is None else self.values * (self.width * PRECISION + KEY)

    @property
    def aligned(self) -> int | None:
        """The width, padded to a multiple of 16 bytes."""
        step = ALIGNED // PRECISION
        return None if self.width is None else -(-self.width // step) * step


def embeddings(fitted: ExplainedFit, params: Params | None) -> tuple[Embedding, ...]:
    """Tables of the family: all code features for families that read all features, those of users and items for `two_tower`, the keys for
    `mf`, `neumf` and `session`, the item for `ease`, `itemknn` and `transitions`, those of its parts for `blend`, else none."""
    graph = fitted.graph
    if isinstance(params, BlendParams):
        return tuple(table for part in params.parts for table in embeddings(fitted, part.params))
    if isinstance(params, EaseParams | ItemKnnParams | TransitionsParams):
        return (_of_items(fitted, params),)
    planned = _widths(graph, params)
    features, sizes = {feature.name: feature for feature in graph.codes}, spec_sizes(graph)
    tables = []
    for name, width in planned.items():
        codes = features[name].cardinality if fitted.knows_data else sizes[name].codes
        chosen = params.embedding if isinstance(params, TwoTowerParams) else params.width  # type: ignore[union-attr]
        says_width = codes is not None or chosen is not None
        tables.append(Embedding(name, codes, width if says_width else None, _values(name, fitted)))
    return tuple(tables)


def _widths(graph: Graph, params: Params | None) -> Mapping[str, int]:
    """Returns the width of each table, by feature."""
    if isinstance(params, WideDeepParams):
        return {table.column: table.width for table in tables_of(graph, params)}
    if isinstance(params, DeepParams):
        return {table.column: table.width for table in plan_tables(graph, params.width)}
    if isinstance(params, TwoTowerParams):
        sides = {feature.name for feature in graph.side("user", "item")}
        return {table.column: table.width for table in plan_tables(graph, params.embedding) if table.column in sides}
    if isinstance(params, MfParams):
        return dict.fromkeys((graph.user, graph.item), params.width + (params.loss != "als"))
    if isinstance(params, SessionParams):
        reads = any(isinstance(operator, Sequence) for operator in graph.operators)  # then no user has a vector by code
        return dict.fromkeys((graph.item,) if reads else (graph.user, graph.item), params.width + 1)
    if isinstance(params, NeumfParams):
        return dict.fromkeys((graph.user, graph.item), params.width + params.layers[0])
    return {}


def _of_items(fitted: ExplainedFit, params: EaseParams | ItemKnnParams | TransitionsParams) -> Embedding:
    """Returns the table of `ease` (a weight for each pair of items), `itemknn` (neighbours) or `transitions` (followers)."""
    item = fitted.graph.item
    codes = (
        next(feature.cardinality for feature in fitted.graph.codes if feature.name == item)
        if fitted.knows_data
        else spec_sizes(fitted.graph)[item].codes
    )
    if isinstance(params, EaseParams) or codes is None:
        return Embedding(item, codes, codes, 1.0)
    count = min(params.neighbours, codes - 1) + 1 if isinstance(params, ItemKnnParams) else min(params.followers, codes)
    return Embedding(item, codes, 2 * count, 1.0)


def _values(name: str, fitted: ExplainedFit) -> float | None:
    feature, sizes = next(feature for feature in fitted.graph.codes if feature.name == name), spec_sizes(fitted.graph)[name]
    if feature.width is None:
        return 1.0
    if name in fitted.values:
        return fitted.values[name]
    most = feature.width if fitted.knows_data else sizes.width or sizes.most
    return None if most is None else float(most)
