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
from pipelines.features.lowering import rows_of
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.neural.architecture import Architecture, table_path
from pipelines.models.tables import Table
from pipelines.training.calibration import UNCALIBRATED

SCORE = "~score"
"""No feature can have such a name."""


def lower(architecture: Architecture, weights: Mapping[str, NDArray[np.float32]], beside: ExternalWeights | None = None) -> Any:
    """Returns the ONNX model: inputs are features by name, the output is a score per row. Large weights go to `beside`, if given."""
    on = _NetworkBuilder(weights, beside or ExternalWeights(sys.maxsize))
    features = {}
    for table in architecture.tables:
        on.input(table.column, "INT32", *rows_of(table.length))
        features[table.column] = _vectors(on, table)
    for name, width in architecture.numbers:
        on.input(name, "FLOAT", *rows_of(width))
        features[name] = on.column(name) if width is None else name
    logit = on.node("Squeeze", architecture.network.lower(on, features), on.constant([1]))
    if architecture.calibration != UNCALIBRATED:
        slope, shift = (on.constant(np.float32(value)) for value in (architecture.calibration.slope, architecture.calibration.shift))
        logit = on.node("Add", on.node("Mul", logit, slope), shift)
    on.node("Sigmoid" if architecture.output == "sigmoid" else "Identity", logit, output=SCORE)
    return on.model(architecture.family, tensor_info(SCORE, "FLOAT", "N"))


class _NetworkBuilder(OnnxBuilder):
    """Implements GraphOperations."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]], beside: ExternalWeights) -> None:
        super().__init__(beside.tensor)
        self._arrays = weights

    def array(self, path: str) -> NDArray[np.float32]:
        return self._arrays[path]

    def weight(self, path: str, blank: int | None = None) -> str:
        """Adds a weight; the row `blank` is zero in the graph."""
        return self.initializer(path, self._arrays[path], blank=blank)


def _vectors(on: _NetworkBuilder, table: Table) -> str:
    path = table_path(table)
    if table.length is None:
        return on.node("Gather", on.weight(path), table.column)
    summed = on.node("ReduceSum", on.node("Gather", on.weight(path, blank=NULL), table.column), on.constant([1]), keepdims=0)
    if table.pooling == "sum":
        return summed
    there = on.cast(on.node("Not", on.node("Equal", table.column, on.constant(np.int32(NULL)))), "FLOAT")
    counts = on.node("ReduceSum", there, on.constant([1]), keepdims=1)
    return on.node("Div", summed, on.node("Max", counts, on.constant(np.float32(1))))
