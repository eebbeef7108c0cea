"""The columns that trees split: features and knowledge, as arrays and as nodes of the served graph, equal in the last bit.

A number is a column, a vector several columns. A code is a number too, because codes are ordered by frequency. Several codes per row become
a count for each code if there are few codes, else the number of codes, the most frequent and the rarest code. Keys are described by
`knowledge`, and where users gave the negatives by their codes too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.features.graph import Graph
from pipelines.features.lowering import rows_of
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.inputs.tables import Codes
from pipelines.models.trees.ensemble import Trees
from pipelines.models.trees.knowledge import ITEM, USER, Knowledge

Floats = NDArray[np.float32]
MATRIX = "matrix"
"""Tensor of the columns in the graph."""
FEW = 64
"""Most codes that get a column each."""
_OF_USER = 2
"""Columns of a user that trees read directly; the others normalise the fit."""


@dataclass(frozen=True)
class FeatureSource:
    """A feature: `length` for lists and vectors, `cardinality` for codes."""

    name: str
    length: int | None
    cardinality: int | None

    @property
    def columns(self) -> tuple[str, ...]:
        if self.cardinality is None:
            return (self.name,) if self.length is None else tuple(f"{self.name}[{at}]" for at in range(self.length))
        if self.length is None:
            return (self.name,)
        if self.cardinality <= FEW:
            return tuple(f"{self.name}={code}" for code in range(self.cardinality))
        return tuple(f"{statistic} {self.name}" for statistic in ("count", "first", "last"))


@dataclass(frozen=True)
class TreeLayout:
    user: str
    item: str
    sources: tuple[FeatureSource, ...]
    """Features; the keys too if trees split their codes."""
    fits: bool
    """Whether there is a factorisation."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        key_columns = [*(f"user: {name}" for name in USER[:_OF_USER]), *(f"item: {name}" for name in ITEM)]
        fit = ["fit", "fit among the user's"] if self.fits else []
        return (*(name for source in self.sources for name in source.columns), *key_columns, *fit)

    def matrix(self, columns: Codes, knowledge: Knowledge) -> Floats:
        """Returns [rows, columns]."""
        users, items = columns[self.user], columns[self.item]
        parts = [_part(source, columns[source.name]) for source in self.sources]
        of_user = knowledge.users[users]
        parts += [of_user[:, :_OF_USER], knowledge.items[items]]
        if self.fits:
            fit = knowledge.fit(users, items)
            parts += [fit[:, None], ((fit - of_user[:, 2]) / of_user[:, 3])[:, None]]
        matrix: Floats = np.concatenate(parts, axis=1, dtype=np.float32)
        return matrix

    def lower(self, knowledge: Knowledge, trees: Trees, probability: bool) -> Any:
        """Returns the ONNX model from features to `score`."""
        build = OnnxBuilder()
        for key in (self.user, self.item):
            build.input(key, "INT32", "N")
        for source in self.sources:
            if source.name in (self.user, self.item):
                continue
            build.input(source.name, "FLOAT" if source.cardinality is None else "INT32", *rows_of(source.length))
        parts = [_lowered(build, source) for source in self.sources] + self._knowledge_parts(build, knowledge)
        sums = trees.lower(build, build.node("Concat", *parts, output=MATRIX, axis=1))
        build.node("Reshape", build.node("Sigmoid", sums) if probability else sums, build.constant([-1]), output="score")
        return build.model("trees", tensor_info("score", "FLOAT", "N"))

    def _knowledge_parts(self, build: OnnxBuilder, knowledge: Knowledge) -> list[str]:
        def gather(name: str, values: NDArray[Any], key: str) -> str:
            return build.node("Gather", build.initializer(f"trees/{name}", np.ascontiguousarray(values)), key)

        parts = [gather("users", knowledge.users[:, :_OF_USER], self.user), gather("items", knowledge.items, self.item)]
        if not self.fits:
            return parts
        user, item = gather("vectors/user", knowledge.user_vectors, self.user), gather("vectors/item", knowledge.item_vectors, self.item)
        products = build.node("Mul", build.cast(user, "DOUBLE"), build.cast(item, "DOUBLE"))
        exact = build.node("ReduceSum", products, build.constant([1]), keepdims=1)
        fit = build.cast(build.node("Mul", exact, build.constant(np.float64(knowledge.scale))), "FLOAT")
        mean, spread = (gather(name, knowledge.users[:, at : at + 1], self.user) for name, at in (("fits/mean", 2), ("fits/spread", 3)))
        return [*parts, fit, build.node("Div", build.node("Sub", fit, mean), spread)]


def layout_of(graph: Graph, fits: bool, keys: bool = False) -> TreeLayout:
    sources = [
        FeatureSource(feature.name, feature.width, feature.cardinality)
        for feature in graph.features
        if keys or feature.name not in (graph.user, graph.item)
    ]
    return TreeLayout(graph.user, graph.item, tuple(sources), fits)


def _part(source: FeatureSource, values: NDArray[Any]) -> Floats:
    if source.cardinality is None or source.length is None:
        numbers: Floats = values.reshape(len(values), -1).astype(np.float32)
        return numbers
    if source.cardinality <= FEW:
        flat = np.arange(len(values))[:, None] * source.cardinality + values
        counted = np.bincount(flat.ravel(), minlength=len(values) * source.cardinality)
        counts: Floats = counted.reshape(len(values), -1).astype(np.float32)
        counts[:, NULL] = 0
        return counts
    there = values != NULL
    first = np.where(there, values, source.cardinality).min(axis=1)
    three: Floats = np.stack([there.sum(axis=1), first, values.max(axis=1)], 1).astype(np.float32)
    return three


def _lowered(build: OnnxBuilder, source: FeatureSource) -> str:
    """Adds the nodes that compute `_part`."""
    if source.cardinality is None:
        return source.name if source.length is not None else build.column(source.name)
    if source.length is None:
        return build.column(build.cast(source.name, "FLOAT"))
    if source.cardinality <= FEW:
        each = np.eye(source.cardinality, dtype=np.float32)
        each[NULL] = 0
        return build.node("ReduceSum", build.node("Gather", build.constant(each), source.name), build.constant([1]), keepdims=0)
    none = build.node("Equal", source.name, build.constant(np.int32(NULL)))
    codes = build.node("Where", none, build.constant(np.int32(source.cardinality)), source.name)
    count = build.node("ReduceSum", build.cast(build.node("Not", none), "FLOAT"), build.constant([1]), keepdims=1)
    first, last = build.node("ReduceMin", codes, axes=[1], keepdims=1), build.node("ReduceMax", source.name, axes=[1], keepdims=1)
    return build.node("Concat", count, build.cast(first, "FLOAT"), build.cast(last, "FLOAT"), axis=1)
