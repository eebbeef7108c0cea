"""An ONNX model under construction: inputs, nodes, weights, and constants without repetition.

Tensors are strings. Names of own tensors contain '~' or '/', which names of columns do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

IR_VERSION, OPSET, ML_OPSET = 8, 17, 2
ML = "ai.onnx.ml"


class OnnxBuilder:
    """`tensor` makes an initializer from an array, a name and further options; `scope` precedes the names in a loop's body."""

    def __init__(self, tensor: Callable[..., Any] | None = None, scope: str = "") -> None:
        from onnx import numpy_helper

        self._tensor, self._scope = tensor or numpy_helper.from_array, scope
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self._initializers: dict[Any, str] = {}

    def input(self, name: str, dtype: str, *dims: Any) -> str:
        self.inputs.append(tensor_info(name, dtype, *dims))
        return name

    def initializer(self, name: str, array: Any, **options: Any) -> str:
        """Adds a named array once."""
        if name not in self._initializers:
            self._initializers[name] = name
            self.weights.append(self._tensor(np.asarray(array), name, **options))
        return name

    def constant(self, values: Any) -> str:
        """Adds a small array, or returns the equal one; Python integers become int64."""
        from onnx import numpy_helper

        array = np.asarray(values)
        key = (array.dtype.str, tuple(array.ravel()) if array.dtype == object else array.tobytes(), array.shape)
        if key not in self._initializers:
            self._initializers[key] = f"~c{len(self.weights)}"
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), self._initializers[key]))
        return self._initializers[key]

    def node(self, kind: str, *inputs: str, output: str | Sequence[str] = "", domain: str = "", **attributes: Any) -> str:
        """Adds a node; returns the (first) output."""
        from onnx import helper

        number = len(self.nodes)
        outputs = [output or f"{self._scope}~{number}"] if isinstance(output, str) else list(output)
        name = f"{self._scope}{kind}_{number}"
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def cast(self, tensor: str, dtype: str) -> str:
        from onnx import TensorProto

        return self.node("Cast", tensor, to=getattr(TensorProto, dtype))

    def column(self, tensor: str) -> str:
        """Returns [rows, 1] from [rows]."""
        return self.node("Unsqueeze", tensor, self.constant([1]))

    def distinct(self, numbers: str, name: str) -> tuple[str, str]:
        """Returns the distinct numbers (int64, not negative) of [rows], and the place of each row's number among them.

        Neighbours are often equal, as rows of one request: only the first of each run goes through `Unique`, which takes a microsecond for
        a number."""
        former = self.node("Concat", self.constant([-1]), self.node("Slice", numbers, self.constant([0]), self.constant([-1])), axis=0)
        begins = self.node("Not", self.node("Equal", numbers, former))
        self.node("Unique", self.node("Compress", numbers, begins), output=(f"{name}/distinct", "", f"{name}/place"), sorted=1)
        run = self.node("Sub", self.node("CumSum", self.cast(begins, "INT64"), self.constant(0)), self.constant(1))
        return f"{name}/distinct", self.node("Gather", f"{name}/place", run)

    def body(self, scope: str) -> OnnxBuilder:
        """Returns a builder for a loop's body, whose weights are this model's. It reads SCOPE`number` and SCOPE`state`."""
        body = OnnxBuilder(self._tensor, scope)
        body.weights, body._initializers = self.weights, self._initializers
        return body

    def loop(
        self, count: str, first: str, body: OnnxBuilder, after: str, *dims: Any, dtype: str = "FLOAT", when: tuple[str, str] = ("", "")
    ) -> str:
        """Repeats the body up to `count` times and returns the last state; `after` is the state after an iteration, `dims` its shape.

        `when`: whether to begin, and, from the body, whether to go on; always without it.
        """
        from onnx import helper

        begins, goes_on = when
        names = [f"{body._scope}{name}" for name in ("number", "more", "state")]
        types: list[tuple[str, tuple[Any, ...]]] = [("INT64", ()), ("BOOL", ()), (dtype, dims)]
        inputs = [tensor_info(name, kind, *shape) for name, (kind, shape) in zip(names, types, strict=True)]
        outputs = [tensor_info(body.node("Identity", goes_on or names[1]), "BOOL"), tensor_info(after, dtype, *dims)]
        return self.node("Loop", count, begins, first, body=helper.make_graph(body.nodes, f"{body._scope}body", inputs, outputs))

    def model(self, name: str, *outputs: Any) -> Any:
        """Returns the ONNX model; outputs are `tensor_info`s."""
        from onnx import helper

        graph = helper.make_graph(self.nodes, name, self.inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
        used = opsets if any(node.domain == ML for node in self.nodes) else opsets[:1]
        return helper.make_model(graph, opset_imports=used, ir_version=IR_VERSION, producer_name="eyas")


def tensor_info(name: str, dtype: str, *dims: Any) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, dtype), list(dims))
