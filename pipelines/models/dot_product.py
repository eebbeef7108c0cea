"""ONNX model that scores by the inner product of two vectors, looked up by code."""

from __future__ import annotations

from typing import Any

from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.external_weights import ExternalWeights
from pipelines.training.als import Factors


def lower_product(name: str, user: str, item: str, factors: Factors, beside: ExternalWeights) -> Any:
    """Returns the ONNX model with the name `name`; its inputs are the codes."""
    build = OnnxBuilder(beside.tensor)
    vectors = [
        build.node("Gather", build.initializer(f"{side}/vectors", array), build.input(column, "INT32", "N"))
        for side, array, column in (("users", factors.users, user), ("items", factors.items, item))
    ]
    build.node("ReduceSum", build.node("Mul", *vectors), build.constant([1]), output="score", keepdims=0)
    return build.model(name, tensor_info("score", "FLOAT", "N"))
