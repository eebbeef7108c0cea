"""What a model's embedding tables will weigh, and what a row of data makes it read of them: before any training.

A lookup of n values reads n x (width x 4 + 8) bytes: the vectors, and a key of eight bytes for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.explain.fitting import Fitted
from pipelines.explain.given import given
from pipelines.models.tables import plan_tables
from shared.contracts.models import MfParams, MlpParams, Params

PRECISION = 4
"""Bytes of a weight: float32."""
KEY = 8
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
    """Of what the family looks up: `mlp` every feature of codes, `mf` the keys, `popularity` nothing."""
    graph = fitted.graph
    if isinstance(params, MlpParams):
        planned = {one.column: one.width for one in plan_tables(graph, params.width)}
    elif isinstance(params, MfParams):
        planned = {graph.user: params.width, graph.item: params.width}
    else:
        planned = {}
    features, known = {one.name: one for one in graph.codes}, given(graph)
    found = []
    for name, width in planned.items():
        codes = features[name].cardinality if fitted.knows_data else known[name].codes
        says_width = codes is not None or params.width is not None  # type: ignore[union-attr]
        found.append(Embedding(name, codes, width if says_width else None, _values(name, fitted)))
    return tuple(found)


def _values(name: str, fitted: Fitted) -> float | None:
    feature, known = next(one for one in fitted.graph.codes if one.name == name), given(fitted.graph)[name]
    if feature.width is None:
        return 1.0
    if name in fitted.values:
        return fitted.values[name]
    most = feature.width if fitted.knows_data else known.width or known.most
    return None if most is None else float(most)
