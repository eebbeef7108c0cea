"""A trained transformer as an ONNX graph from sequences and items to scores.

Rows of a request share a sequence, so the transformer runs once for each distinct sequence: `AT_ONCE` together, cut to the longest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.features.columns import FIRST, NULL
from pipelines.features.graph import IR_VERSION, OPSET
from pipelines.models.attention.encode import NEVER, SMALLEST, encode, only_before
from pipelines.models.attention.shape import BEGIN, HIDDEN, ITEMS, MARKS, PLACES, Shape, Weights
from pipelines.models.external_weights import ExternalWeights
from pipelines.models.user_history import LoopBody

AT_ONCE = 64
"""Sequences per iteration of the loop."""
READ = "read"
"""Vectors of the codes that are not items: NULL, unknown items and marks."""


class OnnxAttention:
    """Implements AttentionOperations on tensors [sequences, places, width], as nodes of the loop's body."""

    def __init__(self, turn: LoopBody, shape: Shape) -> None:
        self._turn, self._width, self._heads = turn, shape.width, shape.heads

    def weight(self, path: str) -> str:
        return path

    def matmul(self, left: str, right: str) -> str:
        return self._turn.node("MatMul", left, right)

    def add(self, left: str, right: str) -> str:
        return self._turn.node("Add", left, right)

    def times(self, rows: str, factor: float) -> str:
        return self._turn.node("Mul", rows, self._turn.array("shares/scale", np.float32(factor)))

    def part(self, rows: str, start: int, stop: int) -> str:
        ends = (self._turn.array(f"parts/{at}", np.array([at], np.int64)) for at in (start, stop, -1))
        return self._turn.node("Slice", rows, *ends)

    def heads(self, rows: str, places: Any, count: int) -> str:
        each = self._turn.array("heads/apart", np.array([0, 0, count, self._width // count], np.int64))
        return self._turn.node("Transpose", self._turn.node("Reshape", rows, each), perm=[0, 2, 1, 3])

    def joined(self, heads: str, width: int) -> str:
        shape = self._turn.array("heads/joined", np.array([0, 0, width], np.int64))
        return self._turn.node("Reshape", self._turn.node("Transpose", heads, perm=[0, 2, 1, 3]), shape)

    def turned(self, rows: str) -> str:
        return self._turn.node("Transpose", rows, perm=[0, 1, 3, 2])

    def softmax(self, rows: str) -> str:
        return self._turn.node("Softmax", rows, axis=-1)

    def relu(self, rows: str) -> str:
        return self._turn.node("Relu", rows)

    def normalise(self, rows: str, path: str) -> str:
        return self._turn.node("LayerNormalization", rows, f"{path}/gamma", f"{path}/beta", axis=-1, epsilon=SMALLEST)

    def dropout(self, rows: str) -> str:
        return rows


def lower(name: str, item: str, sequence: str, shape: Shape, weights: Weights, vectors: Any, beside: ExternalWeights) -> Any:
    """Returns the ONNX model with the name `name`; `vectors` are the items' vectors for scores, by code."""
    from onnx import TensorProto, helper

    def tensor(called: str, kind: int, *dims: Any) -> Any:
        return helper.make_tensor_value_info(called, kind, list(dims))

    turn = LoopBody({path: array for path, array in weights.items() if path not in (ITEMS, MARKS)})
    turn.arrays[ITEMS] = vectors
    turn.arrays[READ] = np.concatenate([weights[ITEMS][:FIRST, :-1], weights[MARKS]])
    state = _state(turn, shape)
    turn.node("Concat", "turn/states", state, output="turn/states_then", axis=0)
    turn.node("Identity", "turn/more", output="turn/more_then")
    body = helper.make_graph(
        turn.nodes,
        "of_some_sequences",
        [
            tensor("turn/number", TensorProto.INT64),
            tensor("turn/more", TensorProto.BOOL),
            tensor("turn/states", TensorProto.FLOAT, "S", shape.width),
        ],
        [tensor("turn/more_then", TensorProto.BOOL), tensor("turn/states_then", TensorProto.FLOAT, "T", shape.width)],
    )
    turn.arrays |= {
        "turns/rest": np.array(AT_ONCE - 1, np.int64),
        "turns/none": np.empty((0, shape.width), np.float32),
        "axes/first": np.array([0], np.int64),
        "axes/second": np.array([1], np.int64),
        "axes/end": np.array([shape.width + 1], np.int64),
    }
    nodes = [
        helper.make_node("Cast", [sequence], ["sequences/wide"], name="sequences/wide", to=TensorProto.INT64),
        helper.make_node("Unique", ["sequences/wide"], ["sequences/distinct", "", "sequences/place"], name="sequences/distinct", axis=0),
        helper.make_node("Shape", ["sequences/distinct"], ["sequences/shape"], name="sequences/shape", end=1),
        helper.make_node("Squeeze", ["sequences/shape", "axes/first"], ["sequences/count"], name="sequences/count"),
        helper.make_node("Add", ["sequences/count", "turns/rest"], ["turns/whole"], name="turns/whole"),
        helper.make_node("Div", ["turns/whole", "turns/at_once"], ["turns/count"], name="turns/count"),
        helper.make_node("Loop", ["turns/count", "", "turns/none"], ["states"], name="each_sequence", body=body),
        helper.make_node("Gather", ["states", "sequences/place"], ["row/states"], name="row/states"),
        helper.make_node("Gather", [ITEMS, item], ["row/items"], name="row/items"),
        helper.make_node("Slice", ["row/items", "axes/first", "parts/width", "axes/second"], ["row/vectors"], name="row/vectors"),
        helper.make_node("Slice", ["row/items", "parts/width", "axes/end", "axes/second"], ["row/level"], name="row/level"),
        helper.make_node("Squeeze", ["row/level", "axes/second"], ["row/levels"], name="row/levels"),
        helper.make_node("Mul", ["row/states", "row/vectors"], ["row/products"], name="row/products"),
        helper.make_node("ReduceSum", ["row/products", "axes/second"], ["row/inner"], name="row/inner", keepdims=0),
        helper.make_node("Add", ["row/inner", "row/levels"], ["score"], name="row/score"),
    ]
    inputs = [tensor(item, TensorProto.INT32, "N"), tensor(sequence, TensorProto.INT32, "N", shape.length)]
    initializers = [beside.tensor(np.asarray(array), called) for called, array in turn.arrays.items()]
    graph = helper.make_graph(nodes, name, inputs, [tensor("score", TensorProto.FLOAT, "N")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="eyas")


def _state(turn: LoopBody, shape: Shape) -> str:
    """Adds the nodes of the transformer and returns [sequences, width], as pipelines.models.attention.plain computes it."""
    from onnx import TensorProto

    def const(name: str, value: Any, kind: Any = np.int64) -> str:
        return turn.array(f"const/{name}", np.array(value, kind))

    first, second, at_once = const("first", [0]), const("second", [1]), turn.array("turns/at_once", np.array(AT_ONCE, np.int64))
    zero, begin = const("zero", 0), turn.node("Mul", "turn/number", at_once)
    end = turn.node("Add", begin, at_once)
    some = turn.node("Slice", "sequences/distinct", *(turn.node("Unsqueeze", bound, first) for bound in (begin, end)), first)
    there = turn.node("Cast", turn.node("Not", turn.node("Equal", some, const("null", NULL))), to=TensorProto.INT64)
    counts = turn.node("ReduceSum", there, second, keepdims=0)
    longest = turn.node("ReduceMax", counts, keepdims=1)
    nothing = turn.node("Unsqueeze", turn.node("Mul", counts, zero), second)
    mark = turn.node("Add", nothing, const("begin", shape.items + BEGIN))
    shown, at = turn.node("Slice", some, first, longest, second), counts
    codes = turn.node("Concat", mark, shown, *([nothing] if shape.objective == "masked" else []), axis=1)
    places = turn.node("Add", longest, const("more", [1 + (shape.objective == "masked")]))
    if shape.objective == "masked":
        at = turn.node("Add", counts, const("one", 1))
        steps = turn.node("Slice", const("steps", [range(shape.places)]), first, places, second)
        sought = turn.node("Equal", steps, turn.node("Unsqueeze", at, second))
        codes = turn.node("Where", sought, const("hidden", shape.items + HIDDEN), codes)
        padding = turn.node("Cast", turn.node("Equal", codes, const("null", NULL)), to=TensorProto.FLOAT)
        hidden = turn.node("Mul", padding, const("never", NEVER, np.float32))
        hidden = turn.node("Unsqueeze", hidden, const("between", [1, 2]))
    else:
        turn.array("later", only_before(shape.places))
        both = turn.node("Concat", places, places, axis=0)
        hidden = turn.node("Slice", "later", const("corner", [0, 0]), both, const("both", [2, 3]))
    width = turn.array("parts/width", np.array([shape.width], np.int64))
    common = turn.node("Gather", ITEMS, turn.node("Min", codes, const("last_item", shape.items - 1)))
    common = turn.node("Slice", common, first, width, const("last", [-1]))
    after = turn.node("Max", turn.node("Sub", codes, const("others", shape.items - FIRST)), zero)
    low, high = turn.node("Less", codes, const("known", FIRST)), turn.node("GreaterOrEqual", codes, const("marks", shape.items))
    other = turn.node("Gather", READ, turn.node("Where", low, codes, after))
    is_other = turn.node("Unsqueeze", turn.node("Or", low, high), const("last", [-1]))
    vectors = turn.node("Where", is_other, other, common)
    vectors = turn.node("Add", vectors, turn.node("Slice", PLACES, first, places, first))
    rows = encode(OnnxAttention(turn, shape), shape, vectors, hidden, 0)
    return turn.node("GatherND", rows, turn.node("Unsqueeze", at, second), batch_dims=1)
