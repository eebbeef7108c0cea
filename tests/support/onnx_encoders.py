"""Small encoders in ONNX: of words, and of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = 500


def write_words(path: Path, width: int = 4, seed: int = 1) -> Path:
    """The mean of a vector for each word, as for WORDS different ones; padding counts too."""
    vectors = np.random.default_rng(seed).normal(size=(WORDS, width)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["vectors", "words"], ["found"]),
        helper.make_node("ReduceMean", ["found"], ["mean"], axes=[1], keepdims=0),
    ]
    taken = helper.make_tensor_value_info("words", TensorProto.INT64, ["N", 6])
    return _save(path, nodes, taken, "mean", [numpy_helper.from_array(vectors, "vectors")], width)


def write_colours(path: Path) -> Path:
    """The mean colour of 4 x 4 pixels."""
    node = helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2], keepdims=0)
    return _save(path, [node], helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 4, 4, 3]), "mean", [], 3)


def _save(
    path: Path, nodes: list[onnx.NodeProto], taken: onnx.ValueInfoProto, output: str, tensors: list[onnx.TensorProto], width: int
) -> Path:
    given = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", width])
    graph = helper.make_graph(nodes, "encoder", [taken], [given], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
