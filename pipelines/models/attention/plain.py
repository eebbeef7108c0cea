"""A trained transformer in NumPy, for scores without a framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.models.attention.encode import NEVER, SMALLEST, AttentionOperations, encode, only_before
from pipelines.models.attention.shape import BEGIN, HIDDEN, ITEMS, MARKS, PLACES, Shape
from pipelines.models.neural.plain import level
from pipelines.models.neural.precision import round_mantissa

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
AT_ONCE = 128
"""Sequences per pass."""


class NumpyAttention(AttentionOperations):
    """Operations in NumPy; inputs of matrix products are rounded to `bits` mantissa bits, unless `bits` is None."""

    def __init__(self, weights: Mapping[str, Floats], bits: int | None = None) -> None:
        super().__init__(np, weights)
        self._bits = bits

    def matmul(self, left: Any, right: Any) -> Any:
        return round_mantissa(left, self._bits) @ round_mantissa(right, self._bits)

    def softmax(self, rows: Any) -> Any:
        exponentials = np.exp(rows - rows.max(axis=-1, keepdims=True))
        exponentials /= exponentials.sum(axis=-1, keepdims=True)
        return exponentials

    def relu(self, rows: Any) -> Any:
        return np.maximum(rows, 0)

    def normalise(self, rows: Any, path: str) -> Any:
        return level(rows, self._weights[f"{path}/gamma"], self._weights[f"{path}/beta"], SMALLEST)


def states(shape: Shape, weights: Mapping[str, Floats], sequences: Ints, bits: int | None = None) -> Floats:
    """Returns the transformer's output for each sequence: [sequences, width]. Sequences hold item codes, the oldest first, then NULL."""
    encoded = np.empty((len(sequences), shape.width), np.float32)
    for at in range(0, len(sequences), AT_ONCE):
        encoded[at : at + AT_ONCE] = _states(shape, weights, sequences[at : at + AT_ONCE], bits)
    return encoded


def _states(shape: Shape, weights: Mapping[str, Floats], sequences: Ints, bits: int | None) -> Floats:
    codes, last = marked(shape, sequences)
    table = np.concatenate([weights[ITEMS][:, :-1], weights[MARKS]])
    vectors = table[codes] * np.float32(shape.scale) + weights[PLACES][: codes.shape[1]]
    hidden = only_before(codes.shape[1]) if shape.objective == "next" else np.float32(NEVER) * (codes == NULL)[:, None, None]
    places = codes.shape[1]
    rows = encode(NumpyAttention(weights, bits), shape, vectors.reshape(-1, shape.width), hidden, places)
    encoded: Floats = rows[np.arange(len(codes)) * places + last]
    return encoded


def marked(shape: Shape, sequences: Ints) -> tuple[Ints, NDArray[np.int64]]:
    """Returns the sequences with marks, cut to the longest, and the place of each sequence's output."""
    counts = (sequences != NULL).sum(axis=1)
    most = int(counts.max(initial=0))
    codes = np.zeros((len(sequences), most + 1 + (shape.objective == "masked")), np.int32)
    codes[:, 0] = shape.items + BEGIN
    codes[:, 1 : most + 1] = sequences[:, :most]
    if shape.objective == "next":
        return codes, counts
    codes[np.arange(len(codes)), counts + 1] = shape.items + HIDDEN
    return codes, counts + 1
