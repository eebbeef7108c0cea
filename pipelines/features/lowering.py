"""Builds the ONNX graph of the features: raw inputs, the operators' nodes, one output per feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from pipelines.features.columns import BLANK, Column, Kind, Raw
from pipelines.features.onnx_builder import ML, OnnxBuilder, tensor_info
from shared.contracts.serving import Lists
from shared.serving.signature import LIST, LISTS, OFFSETS, VALUES

_TENSORS: dict[Kind, str] = {"int64": "INT64", "string": "STRING", "float32": "FLOAT", "code": "INT32"}


class Lowering(OnnxBuilder):
    """ONNX graph under construction, with tensors by column name. `lists`: layout of list inputs; operators see padded lists."""

    def __init__(self, lists: Lists = "padded") -> None:
        super().__init__()
        self._lists = lists
        self.taken: list[str] = []
        """Columns that are inputs."""
        self._values: dict[str, str] = {}
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
            self.input(name + VALUES, _TENSORS[kind], f"V {name}")
            self.input(name + OFFSETS, "INT64", "N + 1")
            self._pad(name, kind, width)
        else:
            self.input(name, _TENSORS[kind], *rows_of(width))
        return name

    def take_shared(self, name: str, kind: Kind, width: int) -> tuple[str, str]:
        """Adds the two inputs of lists that rows share, as the column `name`: the distinct lists, and the number of each row's list."""
        self.taken.append(name)
        self.gives(name, self.input(name + LISTS, _TENSORS[kind], "L", width))
        return self.tensor(name), self.input(name + LIST, "INT64", "N")

    def _pad(self, name: str, kind: Kind, width: int) -> None:
        """Builds padded rows from values and offsets; places behind a list's end point to a blank after the last value."""
        values, offsets = name + VALUES, name + OFFSETS
        columns, first, last = (self.constant(np.array([at], np.int64)) for at in (1, 0, -1))
        starts = self.node("Unsqueeze", self.node("Slice", offsets, first, last), columns)
        ends = self.node("Unsqueeze", self.node("Slice", offsets, columns, self.constant(np.array([2**63 - 1], np.int64))), columns)
        places = self.node("Add", starts, self.constant(np.arange(width, dtype=np.int64)))
        indices = self.node("Where", self.node("Less", places, ends), places, self.node("Shape", values))
        blank: Any = np.array([BLANK.get(kind, np.nan)], {"int64": np.int64, "string": np.object_}.get(kind, np.float32))
        self.node("Gather", self.node("Concat", values, self.constant(blank), axis=0), indices, output=name)

    def gives(self, name: str, tensor: str) -> None:
        self._values[name] = tensor

    def tensor(self, name: str) -> str:
        return self._values[name]

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
            codes = [*range(first, first + len(values)), blank]
            table: dict[str, Any] = {keys: [*values.to_list(), BLANK[column.kind]], "values_int64s": codes, "default_int64": unknown}
            self._lookups[key] = self.node("LabelEncoder", self.value(column), domain=ML, **table)
        return self._lookups[key]

    def hashed(self, tensors: list[str], buckets: int) -> str:
        """Hashes int64 tensors as pipelines.features.hashing does."""
        from pipelines.features.hashing import FACTOR, FINAL, PRIME, SHIFT

        def mod(tensor: str, by: int) -> str:
            return self.node("Mod", tensor, self.constant(by))

        digest = mod(tensors[0], PRIME)
        for tensor in tensors[1:]:
            grown = self.node(
                "Add", self.node("Mul", digest, self.constant(FACTOR)), self.node("Add", mod(tensor, PRIME), self.constant(SHIFT))
            )
            digest = mod(grown, PRIME)
        return mod(mod(self.node("Add", self.node("Mul", digest, self.constant(FINAL)), self.constant(SHIFT)), PRIME), buckets)

    def features_model(self, outputs: Sequence[tuple[str, str, Kind, int | None]], *recent: Any) -> Any:
        """Builds the model. `outputs`: name, value's name, kind and width of each; `recent`: the outputs of recent items, as
        `tensor_info`s."""
        for name, value, _, _ in outputs:
            self.node("Identity", self._values[value], output=name)
        return self.model("features", *(tensor_info(name, _TENSORS[kind], *rows_of(width)) for name, _, kind, width in outputs), *recent)


def rows_of(width: int | None) -> tuple[Any, ...]:
    """Returns the dimensions of a column: one value per row, or `width` values."""
    return ("N",) if width is None else ("N", width)
