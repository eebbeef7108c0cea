"""Lowers a neural model to ONNX from its arrays, independent of the framework.

A column of several codes is summed with its padding: in the graph the padding's vector is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.features.graph import IR_VERSION, OPSET
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.neural.architecture import Architecture, table_path
from pipelines.models.tables import Table

SCORE = "~score"
"""No feature can have such a name."""


def lower(architecture: Architecture, weights: Mapping[str, NDArray[np.float32]], beside: ExternalWeights | None = None) -> Any:
    """Returns the ONNX model: inputs are features by name, the output is a score per row. Large weights go to `beside`, if given."""
    from onnx import TensorProto, helper

    on = _Nodes(weights, beside)
    inputs, features = [], {}
    for table in architecture.tables:
        shape = ["N"] if table.length is None else ["N", table.length]
        inputs.append(helper.make_tensor_value_info(table.column, TensorProto.INT32, shape))
        features[table.column] = _vectors(on, table)
    for name, width in architecture.numbers:
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"] if width is None else ["N", width]))
        features[name] = on.node("Unsqueeze", name, on.constant([1])) if width is None else name
    logit = on.node("Squeeze", architecture.network.lower(on, features), on.constant([1]))
    on.give("Sigmoid" if architecture.output == "sigmoid" else "Identity", logit, SCORE)
    score = helper.make_tensor_value_info(SCORE, TensorProto.FLOAT, ["N"])
    graph = helper.make_graph(on.nodes, architecture.family, inputs, [score], on.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="eyas")


def _vectors(on: _Nodes, table: Table) -> str:
    path = table_path(table)
    if table.length is None:
        return on.node("Gather", on.weight(path), table.column)
    summed = on.node("ReduceSum", on.node("Gather", on.weight(path, blank=NULL), table.column), on.constant([1]), keepdims=0)
    if table.pooling == "sum":
        return summed
    there = on.node("Cast", on.node("Not", on.node("Equal", table.column, on.constant(np.int32(NULL)))), to=_float())
    counts = on.node("ReduceSum", there, on.constant([1]), keepdims=1)
    return on.node("Div", summed, on.node("Max", counts, on.constant(np.float32(1))))


def _float() -> int:
    from onnx import TensorProto

    return int(TensorProto.FLOAT)


class _Nodes:
    """Implements GraphOperations."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]], beside: ExternalWeights | None = None) -> None:
        self._arrays, self._beside = weights, beside or ExternalWeights(sys.maxsize)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._initializers: dict[str, str] = {}

    def array(self, path: str) -> NDArray[np.float32]:
        return self._arrays[path]

    def weight(self, path: str, blank: int | None = None) -> str:
        """Adds a weight; the row `blank` is zero in the graph."""
        if path not in self._initializers:
            self._initializers[path] = path
            self.weights.append(self._beside.tensor(self._arrays[path], path, blank))
        return path

    def constant(self, values: Any) -> str:
        """Adds a constant; Python integers become int64."""
        from onnx import numpy_helper

        array = np.asarray(values)
        name = f"c{array.dtype}{array.shape}{array.tobytes().hex()}"
        if name not in self._initializers:
            self._initializers[name] = f"~c{len(self._initializers)}"
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), self._initializers[name]))
        return self._initializers[name]

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.give(kind, *inputs, f"~{len(self.nodes)}", **attributes)

    def give(self, kind: str, *names: str, **attributes: Any) -> str:
        """Adds a node; the last name is the output's."""
        from onnx import helper

        *inputs, output = names
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{len(self.nodes)}", **attributes))
        return output
