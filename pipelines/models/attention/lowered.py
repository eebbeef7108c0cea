"""A trained transformer as an ONNX graph from sequences and items to scores.

Rows of a request share a sequence, so the transformer runs once for each distinct sequence: `AT_ONCE` together, cut to the longest.

The nodes are written here because export needs no framework then. tf2onnx 1.17 gave equal outputs (difference 7e-7, two blocks), but took
19.5 s, needs TensorFlow and replaces `OnnxAttention` alone: the loop over sequences has no counterpart in the trained network.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.features.columns import FIRST, NULL
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.attention.encode import NEVER, SMALLEST, AttentionOperations, encode, only_before
from pipelines.models.attention.item_features import ItemFeatures, item_vectors, lower_vectors
from pipelines.models.attention.shape import BEGIN, HIDDEN, ITEMS, MARKS, PLACES, Shape, Weights
from pipelines.models.external_weights import ExternalWeights

AT_ONCE = 64
"""Sequences per iteration of the loop."""


class OnnxAttention(AttentionOperations):
    """Operations on tensors [sequences, places, width], as nodes of the loop's body."""

    def __init__(self, turn: OnnxBuilder, shape: Shape, weights: Weights) -> None:
        super().__init__(None, weights)
        self._turn, self._width = turn, shape.width

    def weight(self, path: str) -> str:
        return self._turn.initializer(path, self._weights[path])

    def matmul(self, left: str, right: str) -> str:
        return self._turn.node("MatMul", left, right)

    def add(self, left: str, right: str) -> str:
        return self._turn.node("Add", left, right)

    def times(self, rows: str, factor: float) -> str:
        return self._turn.node("Mul", rows, self._turn.constant(np.float32(factor)))

    def part(self, rows: str, start: int, stop: int) -> str:
        return self._turn.node("Slice", rows, *(self._turn.constant([at]) for at in (start, stop, -1)))

    def heads(self, rows: str, places: Any, count: int) -> str:
        apart = self._turn.constant([0, 0, count, self._width // count])
        return self._turn.node("Transpose", self._turn.node("Reshape", rows, apart), perm=[0, 2, 1, 3])

    def joined(self, heads: str, width: int) -> str:
        return self._turn.node("Reshape", self._turn.node("Transpose", heads, perm=[0, 2, 1, 3]), self._turn.constant([0, 0, width]))

    def turned(self, rows: str) -> str:
        return self._turn.node("Transpose", rows, perm=[0, 1, 3, 2])

    def softmax(self, rows: str) -> str:
        return self._turn.node("Softmax", rows, axis=-1)

    def relu(self, rows: str) -> str:
        return self._turn.node("Relu", rows)

    def normalise(self, rows: str, path: str) -> str:
        gamma, beta = self.weight(f"{path}/gamma"), self.weight(f"{path}/beta")
        return self._turn.node("LayerNormalization", rows, gamma, beta, axis=-1, epsilon=SMALLEST)


def lower(
    name: str, item: str, sequence: str, shape: Shape, weights: Weights, features: ItemFeatures | None, beside: ExternalWeights
) -> Any:
    """Returns the ONNX model with the name `name`."""
    build = OnnxBuilder(beside.tensor)
    build.input(item, "INT32", "N")
    build.input(sequence, "INT32", "N", shape.length)
    distinct, place = "sequences/distinct", "sequences/place"
    build.node("Unique", build.cast(sequence, "INT64"), output=(distinct, "", place), axis=0)
    vectors = lower_vectors(build, weights, features, item)
    build.node("Identity", scores(build, vectors, distinct, place, shape, weights), output="score")
    return build.model(name, tensor_info("score", "FLOAT", "N"))


def scores(build: OnnxBuilder, of_item: str, distinct: str, place: str, shape: Shape, weights: Weights) -> str:
    """Adds the nodes from int64 sequences [sequences, length], the number of each row's sequence and each row's item vector to the scores.
    The vectors come from `lower_vectors`."""
    first, second, width = build.constant([0]), build.constant([1]), build.constant([shape.width])
    items = build.initializer("items/vectors", item_vectors(weights))
    count = build.node("Squeeze", build.node("Shape", distinct, end=1), first)
    turns = build.node("Div", build.node("Add", count, build.constant(AT_ONCE - 1)), build.constant(AT_ONCE))
    turn = build.body("turn/")
    after = turn.node("Concat", "turn/state", _state(turn, shape, weights, items, distinct), axis=0)
    none = build.constant(np.empty((0, shape.width), np.float32))
    states = build.node("Gather", build.loop(turns, none, turn, after, None, shape.width), place)
    inner = build.node("Mul", states, build.node("Slice", of_item, first, width, second))
    level = build.node("Slice", of_item, width, build.constant([shape.width + 1]), second)
    return build.node("Add", build.node("ReduceSum", inner, second, keepdims=0), build.node("Squeeze", level, second))


def _state(turn: OnnxBuilder, shape: Shape, weights: Weights, items: str, distinct: str) -> str:
    """Adds the nodes of the transformer and returns [sequences, width], as pipelines.models.attention.plain computes it."""
    const = turn.constant
    first, second, last, zero = const([0]), const([1]), const([-1]), const(0)
    begin = turn.node("Mul", "turn/number", const(AT_ONCE))
    end = turn.node("Add", begin, const(AT_ONCE))
    some = turn.node("Slice", distinct, *(turn.node("Unsqueeze", bound, first) for bound in (begin, end)), first)
    there = turn.cast(turn.node("Not", turn.node("Equal", some, const(NULL))), "INT64")
    counts = turn.node("ReduceSum", there, second, keepdims=0)
    longest = turn.node("ReduceMax", counts, keepdims=1)
    nothing = turn.column(turn.node("Mul", counts, zero))
    mark = turn.node("Add", nothing, const(shape.items + BEGIN))
    shown, at = turn.node("Slice", some, first, longest, second), counts
    codes = turn.node("Concat", mark, shown, *([nothing] if shape.objective == "masked" else []), axis=1)
    places = turn.node("Add", longest, const([1 + (shape.objective == "masked")]))
    if shape.objective == "masked":
        at = turn.node("Add", counts, const(1))
        steps = turn.node("Slice", const([range(shape.places)]), first, places, second)
        codes = turn.node("Where", turn.node("Equal", steps, turn.column(at)), const(shape.items + HIDDEN), codes)
        padding = turn.cast(turn.node("Equal", codes, const(NULL)), "FLOAT")
        hidden = turn.node("Unsqueeze", turn.node("Mul", padding, const(np.float32(NEVER))), const([1, 2]))
    else:
        both = turn.node("Concat", places, places, axis=0)
        hidden = turn.node("Slice", const(only_before(shape.places)), const([0, 0]), both, const([2, 3]))
    common = turn.node("Gather", items, turn.node("Min", codes, const(shape.items - 1)))
    common = turn.node("Slice", common, first, const([shape.width]), last)
    after = turn.node("Max", turn.node("Sub", codes, const(shape.items - FIRST)), zero)
    low, high = turn.node("Less", codes, const(FIRST)), turn.node("GreaterOrEqual", codes, const(shape.items))
    # vectors of the codes that are not items: NULL, unknown items and marks
    fixed_vectors = turn.initializer("others/vectors", np.concatenate([weights[ITEMS][:FIRST, :-1], weights[MARKS]]))
    other = turn.node("Gather", fixed_vectors, turn.node("Where", low, codes, after))
    vectors = turn.node("Where", turn.node("Unsqueeze", turn.node("Or", low, high), last), other, common)
    if shape.scale != 1:
        vectors = turn.node("Mul", vectors, const(np.float32(shape.scale)))
    by_place = turn.node("Slice", turn.initializer(PLACES, weights[PLACES]), first, places, first)
    rows = encode(OnnxAttention(turn, shape, weights), shape, turn.node("Add", vectors, by_place), hidden, 0)
    return turn.node("GatherND", rows, turn.column(at), batch_dims=1)
