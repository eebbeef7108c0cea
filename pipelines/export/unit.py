"""The served unit: features and model merged into one ONNX graph from raw columns to `score`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pipelines.features.graph import OPSET, Graph, codes_name
from pipelines.models.mlp import Architecture
from shared.serving.signature import OUTPUT

_PREFIX = "model/"


def write_unit(graph: Graph, architecture: Architecture, model: Any, path: Path) -> Path:
    import onnx

    core = onnx.compose.add_prefix(_convert(architecture, model), _PREFIX)
    links = [(codes_name(one.column), _PREFIX + one.column) for one in graph.features]
    unit = onnx.compose.merge_models(graph.lower(), core, io_map=links)
    _rename_output(unit, unit.graph.output[0].name, OUTPUT)
    del unit.graph.value_info[:]
    onnx.checker.check_model(unit, full_check=True)
    path.write_bytes(unit.SerializeToString())
    return path


def _convert(architecture: Architecture, model: Any) -> Any:
    """The Keras model alone as ONNX, its inputs the codes."""
    import tensorflow as tf
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    inputs = {
        name: tf.TensorSpec((None,) if length is None else (None, length), tf.int32, name=name)
        for name, length in architecture.lengths.items()
    }
    core, _ = tf2onnx.convert.from_keras(model, input_signature=[inputs], opset=OPSET)
    core.ir_version = 8
    return core


def _rename_output(unit: Any, old: str, new: str) -> None:
    from onnx import TensorProto, helper

    for node in unit.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                if name == old:
                    names[at] = new
    del unit.graph.output[:]
    unit.graph.output.append(helper.make_tensor_value_info(new, TensorProto.FLOAT, ["N"]))
