"""The served unit: features and model merged into one ONNX graph, from raw columns to `score`.

What the features made of each column is an output too, so that `verify` can hold it against training's: who asks for `score`
alone doesn't pay for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.features.graph import IR_VERSION, Graph
from pipelines.features.operators.base import output_name
from pipelines.models.family import Trained
from shared.contracts.serving import Lists
from shared.domain.errors import Invalid
from shared.serving.signature import OUTPUT

LARGEST = 2**31 - 1
"""Bytes of a protobuf message."""
_PREFIX = "model/"


def write_unit(graph: Graph, model: Trained, path: Path, limit: int | None = None, lists: Lists = "padded") -> Path:
    """Names stay as they are in the data, `movieId` as `movieId`; the number of rows is free."""
    import onnx

    unit = merge(graph.lower(limit, lists), model.lower())
    size = unit.ByteSize()
    if size > LARGEST:
        raise Invalid(f"model.onnx would take {size / 1e9:.2f} GB; a graph holds 2.14 GB: choose a smaller width or a larger min_count")
    onnx.checker.check_model(unit, full_check=True)
    path.write_bytes(unit.SerializeToString())
    return path


def merge(features: Any, model: Any) -> Any:
    """Puts the features in front of a lowered model: its inputs are features, under their names."""
    import onnx

    codes = list(features.graph.output)
    model.ir_version = IR_VERSION
    links = [(output_name(one.name), _PREFIX + one.name) for one in model.graph.input]
    unit = onnx.compose.merge_models(features, _prefixed(model), io_map=links)
    _rename(unit, _PREFIX + model.graph.output[0].name, OUTPUT)
    unit.graph.output.extend(codes)
    del unit.graph.value_info[:]
    return unit


def _prefixed(model: Any) -> Any:
    """In the body of a loop onnx renames what nodes and inputs around it give, and forgets what is an initializer there."""
    import onnx

    found = onnx.compose.add_prefix(model, _PREFIX)
    held = {one.name for one in found.graph.initializer}
    for body in (attribute.g for node in found.graph.node for attribute in node.attribute if attribute.HasField("g")):
        for node in body.node:
            for at, name in enumerate(node.input):
                if _PREFIX + name in held:
                    node.input[at] = _PREFIX + name
    return found


def _rename(unit: Any, old: str, new: str) -> None:
    from onnx import TensorProto, helper

    for node in unit.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                if name == old:
                    names[at] = new
    del unit.graph.output[:]
    unit.graph.output.append(helper.make_tensor_value_info(new, TensorProto.FLOAT, ["N"]))
