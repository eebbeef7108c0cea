"""ONNX model that scores by the inner product of two vectors, looked up by code."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.features.graph import IR_VERSION, OPSET
from pipelines.models.external_weights import ExternalWeights
from pipelines.training.als import Factors


def lower_product(name: str, user: str, item: str, factors: Factors, beside: ExternalWeights) -> Any:
    """Returns the ONNX model with the name `name`; its inputs are the codes."""
    from onnx import TensorProto, helper, numpy_helper

    inputs = [helper.make_tensor_value_info(column, TensorProto.INT32, ["N"]) for column in (user, item)]
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])
    nodes = [
        helper.make_node("Gather", ["users", user], ["user_vectors"], name="user_vectors"),
        helper.make_node("Gather", ["items", item], ["item_vectors"], name="item_vectors"),
        helper.make_node("Mul", ["user_vectors", "item_vectors"], ["products"], name="products"),
        helper.make_node("ReduceSum", ["products", "axes"], ["score"], name="inner_product", keepdims=0),
    ]
    weights = [beside.tensor(array, of) for of, array in {"users": factors.users, "items": factors.items}.items()]
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    graph = helper.make_graph(nodes, name, inputs, [score], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="eyas")
