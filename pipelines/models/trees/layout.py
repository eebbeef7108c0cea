"""The columns that trees split: features and knowledge, as arrays and as nodes of the served graph, equal in the last bit.

A number is a column, a vector several columns. A code is a number too, because codes are ordered by frequency. Several codes per row become
a count for each code if there are few codes, else the number of codes, the most frequent and the rarest code. Keys are described by
`knowledge`, not by codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.features.graph import IR_VERSION, ML_OPSET, OPSET, Graph
from pipelines.inputs.tables import Codes
from pipelines.models.trees.ensemble import Trees
from pipelines.models.trees.knowledge import ITEM, USER, Knowledge

Floats = NDArray[np.float32]
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
    """Features without the keys."""
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
        from onnx import helper

        made = _Nodes(self)
        parts = [made.part(source) for source in self.sources] + made.knowledge_parts(knowledge)
        made.add("Concat", *parts, output="matrix", axis=1)
        made.nodes.append(trees.node("matrix", "sums"))
        last = made.add("Sigmoid", "sums") if probability else "sums"
        made.add("Reshape", last, made.array("flat", np.array([-1], np.int64)), output="score")
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        return helper.make_model(made.graph(), opset_imports=opsets, ir_version=IR_VERSION, producer_name="eyas")


def layout_of(graph: Graph, fits: bool) -> TreeLayout:
    sources = [
        FeatureSource(feature.name, feature.width, feature.cardinality)
        for feature in graph.features
        if feature.name not in (graph.user, graph.item)
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


class _Nodes:
    def __init__(self, layout: TreeLayout) -> None:
        self.layout = layout
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = {}

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = output or f"trees/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"trees/{kind}_{len(self.nodes)}", **attributes))
        return output

    def array(self, name: str, values: NDArray[Any]) -> str:
        self.weights[f"trees/{name}"] = values
        return f"trees/{name}"

    def number(self, name: str) -> str:
        from onnx import TensorProto

        return self.add("Cast", name, to=TensorProto.FLOAT)

    def upright(self, name: str) -> str:
        return self.add("Unsqueeze", name, self.array("second_axis", np.array([1], np.int64)))

    def part(self, source: FeatureSource) -> str:
        if source.cardinality is None:
            return source.name if source.length is not None else self.upright(source.name)
        if source.length is None:
            return self.upright(self.number(source.name))
        axes = self.array("second_axis", np.array([1], np.int64))
        if source.cardinality <= FEW:
            each = np.eye(source.cardinality, dtype=np.float32)
            each[NULL] = 0
            rows = self.add("Gather", self.array(f"each/{source.name}", each), source.name)
            return self.add("ReduceSum", rows, axes, keepdims=0)
        nothing = self.array("nothing", np.array(NULL, np.int32))
        behind = self.array(f"behind/{source.name}", np.array(source.cardinality, np.int32))
        none = self.add("Equal", source.name, nothing)
        first = self.add("ReduceMin", self.add("Where", none, behind, source.name), axes=[1], keepdims=1)
        last = self.add("ReduceMax", source.name, axes=[1], keepdims=1)
        count = self.add("ReduceSum", self.number(self.add("Not", none)), axes, keepdims=1)
        return self.add("Concat", count, self.number(first), self.number(last), axis=1)

    def knowledge_parts(self, knowledge: Knowledge) -> list[str]:
        from onnx import TensorProto

        user, item = self.layout.user, self.layout.item
        parts = [
            self.add("Gather", self.array("users", knowledge.users[:, :_OF_USER]), user),
            self.add("Gather", self.array("items", knowledge.items), item),
        ]
        if not self.layout.fits:
            return parts
        sides = [
            self.add("Cast", self.add("Gather", self.array(name, vectors), key), to=TensorProto.DOUBLE)
            for name, vectors, key in (("vectors/user", knowledge.user_vectors, user), ("vectors/item", knowledge.item_vectors, item))
        ]
        axes = self.array("second_axis", np.array([1], np.int64))
        exact = self.add("ReduceSum", self.add("Mul", *sides), axes, keepdims=1)
        fit = self.number(self.add("Mul", exact, self.array("scale", np.array(knowledge.scale, np.float64))))
        mean, spread = (
            self.add("Gather", self.array(name, np.ascontiguousarray(knowledge.users[:, at : at + 1])), user)
            for name, at in (("fits/mean", 2), ("fits/spread", 3))
        )
        return [*parts, fit, self.add("Div", self.add("Sub", fit, mean), spread)]

    def graph(self) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        layout = self.layout
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N"]) for name in (layout.user, layout.item)]
        for source in layout.sources:
            kind = TensorProto.FLOAT if source.cardinality is None else TensorProto.INT32
            inputs.append(helper.make_tensor_value_info(source.name, kind, ["N"] if source.length is None else ["N", source.length]))
        score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])
        weights = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in self.weights.items()]
        return helper.make_graph(self.nodes, "trees", inputs, [score], weights)
