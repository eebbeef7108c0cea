"""What a model's embedding tables will weigh, and what a row of data makes it read of them: before any training.

A lookup of n values reads n x (width x 4 + 8) bytes: the vectors, and a key of eight bytes for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.explain.fitting import Fitted
from pipelines.explain.spec_sizes import spec_sizes
from pipelines.features.operators.sequence import Sequence
from pipelines.models.tables import KEY, PRECISION, plan_tables
from pipelines.models.wide_deep import tables_of
from shared.contracts.families import (
    DeepParams,
    EaseParams,
    ItemKnnParams,
    MfParams,
    NeumfParams,
    Params,
    SessionParams,
    TwoTowerParams,
    WideDeepParams,
)

ALIGNED = 16
"""Bytes; what widths are best a multiple of."""


@dataclass(frozen=True)
class Embedding:
    """The table of a feature. None: only fitting tells."""

    feature: str
    codes: int | None
    width: int | None
    values: float | None
    """How many a row has; the most that there may be, where they weren't counted."""

    @property
    def size(self) -> int | None:
        return None if self.codes is None or self.width is None else self.codes * self.width * PRECISION

    @property
    def lookup(self) -> float | None:
        return None if self.width is None or self.values is None else self.values * (self.width * PRECISION + KEY)

    @property
    def aligned(self) -> int | None:
        """The width, were it padded to whole 16 bytes."""
        step = ALIGNED // PRECISION
        return None if self.width is None else -(-self.width // step) * step


def embeddings(fitted: Fitted, params: Params | None) -> tuple[Embedding, ...]:
    """Of what the family looks up: every feature of codes, where it takes all features, `two_tower` those of users and items, `mf`,
    `neumf` and `session` the keys, `ease` and `itemknn` the item, else nothing."""
    graph = fitted.graph
    if isinstance(params, EaseParams | ItemKnnParams):
        return (_of_items(fitted, params),)
    if isinstance(params, WideDeepParams):
        planned = {table.column: table.width for table in tables_of(graph, params)}
    elif isinstance(params, DeepParams):
        planned = {table.column: table.width for table in plan_tables(graph, params.width)}
    elif isinstance(params, TwoTowerParams):
        sides = {feature.name for feature in graph.side("user", "item")}
        planned = {table.column: table.width for table in plan_tables(graph, params.embedding) if table.column in sides}
    elif isinstance(params, MfParams):
        planned = dict.fromkeys((graph.user, graph.item), params.width + (params.loss != "als"))
    elif isinstance(params, SessionParams):
        reads = any(isinstance(operator, Sequence) for operator in graph.operators)  # then no user has a vector by code
        planned = dict.fromkeys((graph.item,) if reads else (graph.user, graph.item), params.width + 1)
    elif isinstance(params, NeumfParams):
        planned = dict.fromkeys((graph.user, graph.item), params.width + params.layers[0])
    else:
        planned = {}
    features, sizes = {feature.name: feature for feature in graph.codes}, spec_sizes(graph)
    tables = []
    for name, width in planned.items():
        codes = features[name].cardinality if fitted.knows_data else sizes[name].codes
        chosen = params.embedding if isinstance(params, TwoTowerParams) else params.width  # type: ignore[union-attr]
        says_width = codes is not None or chosen is not None
        tables.append(Embedding(name, codes, width if says_width else None, _values(name, fitted)))
    return tuple(tables)


def _of_items(fitted: Fitted, params: EaseParams | ItemKnnParams) -> Embedding:
    """Of each item a weight for every other, or its neighbours and how near they are; a row's score reads no more than a row of it."""
    item = fitted.graph.item
    codes = (
        next(feature.cardinality for feature in fitted.graph.codes if feature.name == item)
        if fitted.knows_data
        else spec_sizes(fitted.graph)[item].codes
    )
    if isinstance(params, EaseParams) or codes is None:
        return Embedding(item, codes, codes, 1.0)
    return Embedding(item, codes, 2 * (min(params.neighbours, codes - 1) + 1), 1.0)


def _values(name: str, fitted: Fitted) -> float | None:
    feature, sizes = next(feature for feature in fitted.graph.codes if feature.name == name), spec_sizes(fitted.graph)[name]
    if feature.width is None:
        return 1.0
    if name in fitted.values:
        return fitted.values[name]
    most = feature.width if fitted.knows_data else sizes.width or sizes.most
    return None if most is None else float(most)
