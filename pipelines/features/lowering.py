"""Builds the ONNX graph of the features: raw inputs, the operators' nodes, one output per feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, Column, Kind, Raw
from shared.contracts.serving import Lists
from shared.serving.signature import OFFSETS, VALUES

IR_VERSION, OPSET, ML_OPSET = 8, 17, 2
_TENSORS: dict[Kind, str] = {"int64": "INT64", "string": "STRING", "float32": "FLOAT", "code": "INT32"}


class Lowering:
    """ONNX graph under construction, with tensors by column name. `lists`: layout of list inputs; operators see padded lists."""

    def __init__(self, lists: Lists = "padded") -> None:
        self._lists = lists
        self.taken: list[str] = []
        """Columns that are inputs."""
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self._values: dict[str, str] = {}
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}
        self._lookups: dict[tuple[str, str], str] = {}
        self._keep: list[Any] = []

    def value(self, column: Column) -> str:
        """Returns a column's tensor; a raw column becomes an input at first use."""
        if column.name not in self._values:
            if not isinstance(column, Raw):
                raise RuntimeError(f"'{column.name}' is used before it is made")
            self._values[column.name] = self.take(column.name, column.kind, column.width if column.many else None)
        return self._values[column.name]

    def take(self, name: str, kind: Kind, width: int | None) -> str:
        """Adds an input for a column: one value per row, or `width` values, padded with blanks. Lists as offsets take two inputs."""
        self.taken.append(name)
        if width is not None and self._lists == "offsets":
            self._input(name + VALUES, kind, [f"V {name}"])
            self._input(name + OFFSETS, "int64", ["N + 1"])
            self._pad(name, kind, width)
        else:
            self._input(name, kind, ["N"] if width is None else ["N", width])
        return name

    def _input(self, name: str, kind: Kind, shape: list[Any]) -> None:
        from onnx import TensorProto, helper

        self.inputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, _TENSORS[kind]), shape))

    def _pad(self, name: str, kind: Kind, width: int) -> None:
        """Builds padded rows from values and offsets; places behind a list's end point to a blank after the last value."""
        values, offsets = name + VALUES, name + OFFSETS
        columns, first, last = (self.constant(np.array([at], np.int64)) for at in (1, 0, -1))
        starts = self.node("Unsqueeze", self.node("Slice", offsets, first, last), columns)
        ends = self.node("Unsqueeze", self.node("Slice", offsets, columns, self.constant(np.array([2**63 - 1], np.int64))), columns)
        places = self.node("Add", starts, self.constant(np.arange(width, dtype=np.int64)))
        indices = self.node("Where", self.node("Less", places, ends), places, self.node("Shape", values))
        blank = np.array([BLANK.get(kind, np.nan)], {"int64": np.int64, "string": np.object_}.get(kind, np.float32))
        self.node("Gather", self.node("Concat", values, self.constant(blank), axis=0), indices)
        self.nodes[-1].output[0] = name

    def gives(self, name: str, tensor: str) -> None:
        self._values[name] = tensor

    def tensor(self, name: str) -> str:
        return self._values[name]

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"{kind}_{len(self.nodes)}", domain=domain, **attributes))
        return output

    def constant(self, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        array = np.asarray(array)
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._constants:
            name = self._constants[key] = f"c{len(self.weights)}"
            self.weights.append(numpy_helper.from_array(array, name))
        return self._constants[key]

    def cast(self, tensor: str, dtype: str) -> str:
        from onnx import TensorProto

        return self.node("Cast", tensor, to=getattr(TensorProto, dtype))

    def number(self, column: Column) -> str:
        """Returns float32; null is NaN."""
        value = self.value(column)
        if column.kind == "float32":
            return value
        blank = self.node("Equal", value, self.constant(np.array(BLANK["int64"], np.int64)))
        return self.node("Where", blank, self.constant(np.array(np.nan, np.float32)), self.cast(value, "FLOAT"))

    def look_up(self, column: Column, values: pl.Series, first: int, blank: int, unknown: int) -> str:
        """Maps values to int64 numbers from `first` on, in their order."""
        keys = "keys_int64s" if column.kind == "int64" else "keys_strings"
        key = (column.name, f"{id(values)} {first} {blank} {unknown}")
        if key not in self._lookups:
            self._keep.append(values)  # keeps the id unique
            codes = list(range(first, first + len(values)))
            table = {keys: [*values.to_list(), BLANK[column.kind]], "values_int64s": [*codes, blank], "default_int64": unknown}
            self._lookups[key] = self.node("LabelEncoder", self.value(column), domain="ai.onnx.ml", **table)
        return self._lookups[key]

    def hashed(self, tensors: list[str], buckets: int) -> str:
        """Hashes int64 tensors as pipelines.features.hashing does."""
        from pipelines.features.hashing import FACTOR, FINAL, PRIME, SHIFT

        def const(value: int) -> str:
            return self.constant(np.array(value, np.int64))

        def mod(tensor: str, by: int) -> str:
            return self.node("Mod", tensor, const(by))

        digest = mod(tensors[0], PRIME)
        for tensor in tensors[1:]:
            grown = self.node("Add", self.node("Mul", digest, const(FACTOR)), self.node("Add", mod(tensor, PRIME), const(SHIFT)))
            digest = mod(grown, PRIME)
        return mod(mod(self.node("Add", self.node("Mul", digest, const(FINAL)), const(SHIFT)), PRIME), buckets)

    def model(self, outputs: list[tuple[str, str, Kind, int | None]]) -> Any:
        """Builds the model. `outputs`: name, value's name, kind and width of each."""
        from onnx import TensorProto, helper

        infos = []
        for name, value, kind, width in outputs:
            self.nodes.append(helper.make_node("Identity", [self._values[value]], [name], name=f"give_{name}"))
            shape = ["N"] if width is None else ["N", width]
            infos.append(helper.make_tensor_value_info(name, getattr(TensorProto, _TENSORS[kind]), shape))
        graph = helper.make_graph(self.nodes, "features", self.inputs, infos, self.weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="eyas")
