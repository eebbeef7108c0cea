"""A served unit in steps, for a Triton with a GPU: features on the CPU, then the network on the GPU; or trees there, then their score.

Features read texts and search vocabularies, which no GPU does: in one graph, a runtime would copy tensors for each such operator. The steps
compute what the unit's own graph computes. Where each tensor has a row for each row of a request, rows are [rows, width] between the steps,
so that Triton can compute waiting calls together.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.export.merging import merge
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.features.operators.base import output_name
from pipelines.models.family import Trained
from pipelines.models.trees.layout import MATRIX
from pipelines.models.trees.model import TreeModel
from shared.serving.signature import OUTPUT, Signature, Step, StepTensor

FEATURES, NETWORK, TREES, SCORE = "features.onnx", "network.onnx", "trees.tl", "score.onnx"
_CUT = "steps/"
_AXIS = "steps/axis"
_COLUMN = "/column"
_TYPES: dict[int, Any] = {1: "float32", 6: "int32", 7: "int64"}
"""Names of ONNX's types by number."""


@dataclass(frozen=True)
class UnitSteps:
    features: Any
    """ONNX model of the first step. Its large weights are still placeholders."""
    links: tuple[StepTensor, ...]
    """Tensors from the first step to the second, with the names of the second."""
    batches: bool
    last: Any
    """ONNX model of the last step: the network, or the score of the trees. Its large weights are still placeholders."""
    output: str = OUTPUT + _COLUMN
    """Output of the last step's model."""
    trees: TreeModel | None = None

    def following(self) -> tuple[Step, ...]:
        """Returns all steps but the first."""
        score = StepTensor(name=self.output, tensor=OUTPUT, dtype="float32", width=1 if self.batches else None)
        if self.trees is None:
            return (Step(file=NETWORK, device="gpu", batches=self.batches, inputs=self.links, outputs=(score,)),)
        margin = StepTensor(name="output__0", tensor=f"{_CUT}margin", dtype="float32", width=1)
        inputs = (margin.model_copy(update={"name": "margin"}),)
        return (
            Step(file=TREES, device="gpu", batches=True, inputs=self.links, outputs=(margin,)),
            Step(file=SCORE, device="cpu", batches=True, inputs=inputs, outputs=(score,)),
        )

    def of(self, served: Signature) -> Signature:
        """Adds the steps to the signature."""
        inputs = tuple(
            StepTensor(name=tensor.name, tensor=tensor.name, dtype=tensor.dtype, width=tensor.width, each=tensor.each)
            for tensor in served.tensors
        )
        features = [
            StepTensor(name=feature.output, tensor=feature.output, dtype=feature.dtype, width=feature.width) for feature in served.features
        ]
        names = {feature.name for feature in features}
        more = [link.model_copy(update={"name": link.tensor}) for link in self.links if link.tensor not in names]
        first = Step(file=FEATURES, device="cpu", batches=False, inputs=inputs, outputs=(*features, *more))
        return served.model_copy(update={"steps": (first, *self.following())})


def network_steps(features: Any, lowered: Any) -> UnitSteps:
    """Splits a unit between its features and its network, before the two are merged."""
    first, network = copy.deepcopy(features), copy.deepcopy(lowered)
    batches = all(_dims(value)[0] == "N" for value in network.graph.input)
    links = []
    for value in network.graph.input:
        (length, *width), dtype = _dims(value), _TYPES[value.type.tensor_type.elem_type]
        if batches and not width:
            links.append(_column(first, network, value, dtype))
        else:
            each = "list" if length == "L" else "row"
            links.append(
                StepTensor(name=value.name, tensor=output_name(value.name), dtype=dtype, width=width[0] if width else None, each=each)
            )
    if batches:
        _reshape(network, "Unsqueeze", network.graph.output[0].name, OUTPUT + _COLUMN)
        network.graph.output[0].CopyFrom(tensor_info(OUTPUT + _COLUMN, "FLOAT", "N", 1))
    return UnitSteps(first, tuple(links), batches, network, network.graph.output[0].name)


def tree_steps(features: Any, lowered: Any, model: TreeModel) -> UnitSteps:
    """Splits a unit before its trees."""
    columns, tensor = len(model.layout.columns), f"{_CUT}{MATRIX}"
    link = StepTensor(name="input__0", tensor=tensor, dtype="float32", width=columns)
    build = OnnxBuilder()
    build.node("Sigmoid" if model.probability else "Identity", build.input("margin", "FLOAT", "N", 1), output=OUTPUT + _COLUMN)
    score = build.model("score", tensor_info(OUTPUT + _COLUMN, "FLOAT", "N", 1))
    first = merge(copy.deepcopy(features), _before_trees(lowered, columns), tensor_info(tensor, "FLOAT", "N", columns))
    return UnitSteps(first, (link,), True, score, trees=model)


def _before_trees(lowered: Any, columns: int) -> Any:
    """Returns the part of a model of trees that computes their columns. The trees are not copied, because they can be large."""
    from onnx import helper

    end = next(at for at, node in enumerate(lowered.graph.node) if MATRIX in node.output)
    nodes = lowered.graph.node[: end + 1]
    reads = {name for node in nodes for name in node.input}
    arrays = [tensor for tensor in lowered.graph.initializer if tensor.name in reads]
    graph = helper.make_graph(nodes, MATRIX, list(lowered.graph.input), [tensor_info(MATRIX, "FLOAT", "N", columns)], arrays)
    return helper.make_model(graph, opset_imports=list(lowered.opset_import), ir_version=lowered.ir_version)


def steps_of(features: Any, lowered: Any, model: Trained) -> UnitSteps:
    return tree_steps(features, lowered, model) if isinstance(model, TreeModel) else network_steps(features, lowered)


def _column(first: Any, network: Any, value: Any, dtype: Any) -> StepTensor:
    """Passes a single value of each row as [rows, 1]."""
    name, tensor, column = value.name, f"{_CUT}{value.name}", value.name + _COLUMN
    _reshape(first, "Unsqueeze", output_name(name), tensor)
    _reshape(network, "Squeeze", column, name, front=True)
    value.name = column
    value.type.tensor_type.shape.dim.add(dim_value=1)
    first.graph.output.add(name=tensor, type=value.type)
    return StepTensor(name=column, tensor=tensor, dtype=dtype, width=1)


def _reshape(model: Any, kind: str, source: str, made: str, front: bool = False) -> None:
    from onnx import helper, numpy_helper

    if all(tensor.name != _AXIS for tensor in model.graph.initializer):
        model.graph.initializer.append(numpy_helper.from_array(np.array([1]), _AXIS))
    node = helper.make_node(kind, [source, _AXIS], [made], name=f"{kind}/{made}")
    model.graph.node.insert(0 if front else len(model.graph.node), node)


def _dims(value: Any) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
