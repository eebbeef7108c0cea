"""ONNX model that scores by the inner product of two vectors, looked up by code."""

from __future__ import annotations

from typing import Any

from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.external_weights import ExternalWeights
from pipelines.training.als import Factors


def lower_product(name: str, user: str, item: str, factors: Factors, beside: ExternalWeights) -> Any:
    """Returns the ONNX model with the name `name`; its inputs are the codes."""
    build = OnnxBuilder(beside.tensor)
    for column in (user, item):
        build.input(column, "INT32", "N")
    build.node("Identity", product(build, user, item, factors), output="score")
    return build.model(name, tensor_info("score", "FLOAT", "N"))


def product(build: OnnxBuilder, user: str, item: str, factors: Factors) -> str:
    """Adds the inner products of the vectors of two tensors of codes."""
    sides = (("users", factors.users, user), ("items", factors.items, item))
    vectors = [build.node("Gather", build.initializer(f"{side}/vectors", array), codes) for side, array, codes in sides]
    return inner_products(build, *vectors)


def inner_products(build: OnnxBuilder, left: str, right: str) -> str:
    """Adds the inner products of the rows of two tensors."""
    return build.node("ReduceSum", build.node("Mul", left, right), build.constant([1]), keepdims=0)
