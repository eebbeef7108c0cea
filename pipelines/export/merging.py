"""Joins the graphs of features and model."""

from __future__ import annotations

from typing import Any

from pipelines.features.graph import IR_VERSION
from pipelines.features.onnx_builder import tensor_info
from pipelines.features.operators.base import RECENT, RECENT_LIST, output_name
from shared.serving.signature import OUTPUT

_PREFIX = "model/"


def merge(features: Any, model: Any, output: Any = None) -> Any:
    """Joins features and a lowered model, whose inputs have the features' names. `output`: the model's, `score` by default."""
    import onnx

    output = output or tensor_info(OUTPUT, "FLOAT", "N")
    codes = [code for code in features.graph.output if code.name not in (output_name(RECENT), output_name(RECENT_LIST))]
    model.ir_version = IR_VERSION
    links = [(output_name(feature.name), _PREFIX + feature.name) for feature in model.graph.input]
    # onnx prefixes initializers only after the bodies of loops, which read them
    names = {tensor.name: _PREFIX + tensor.name for tensor in model.graph.initializer} | {model.graph.output[0].name: output.name}
    onnx.compose.add_prefix_graph(model.graph, _PREFIX, rename_outputs=False, inplace=True, name_map=names)
    unit = onnx.compose.merge_models(features, model, io_map=links)
    del unit.graph.output[:], unit.graph.value_info[:]
    unit.graph.output.extend([output, *codes])
    return unit
