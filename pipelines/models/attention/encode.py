"""A transformer over sequences, in a few operations that training, scoring and the served graph all implement.

A block has attention over the places before (or over all places), then a feed-forward layer on each place; each adds its result to its
input. Vectors are normalised before each of both, and once more at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.models.attention.shape import Shape

NEVER = -1e9
"""Added to a logit that attention or a choice must ignore."""
SMALLEST = 1e-5
"""Added to a variance before it divides."""


class AttentionOperations:
    """Operations of a runtime, here of NumPy and Keras; `arrays` is the module `numpy` or `keras.ops`.

    Tensors are [sequences x places, width] with a place per row, unless stated otherwise.
    """

    def __init__(self, arrays: Any, weights: Mapping[str, Any]) -> None:
        self._arrays, self._weights = arrays, weights

    def weight(self, path: str) -> Any:
        return self._weights[path]

    def matmul(self, left: Any, right: Any) -> Any:
        return self._arrays.matmul(left, right)

    def add(self, left: Any, right: Any) -> Any:
        return left + right

    def times(self, rows: Any, factor: float) -> Any:
        return rows * factor

    def part(self, rows: Any, start: int, stop: int) -> Any:
        """Returns some columns."""
        return rows[:, start:stop]

    def heads(self, rows: Any, places: int, count: int) -> Any:
        """Returns [sequences, heads, places, width of a head]."""
        return self._arrays.transpose(self._arrays.reshape(rows, (-1, places, count, rows.shape[1] // count)), (0, 2, 1, 3))

    def joined(self, heads: Any, width: int) -> Any:
        """Reverses `heads`."""
        return self._arrays.reshape(self._arrays.transpose(heads, (0, 2, 1, 3)), (-1, width))

    def turned(self, rows: Any) -> Any:
        """Swaps the last two dimensions."""
        return self._arrays.swapaxes(rows, -1, -2)

    def softmax(self, rows: Any) -> Any:
        """Softmax over the last dimension."""
        raise NotImplementedError

    def relu(self, rows: Any) -> Any:
        raise NotImplementedError

    def normalise(self, rows: Any, path: str) -> Any:
        """Layer norm over the width."""
        raise NotImplementedError

    def dropout(self, rows: Any) -> Any:
        """Drops numbers in training only."""
        return rows


def encode(on: AttentionOperations, shape: Shape, vectors: Any, hidden: Any, places: int) -> Any:
    """Returns the encoded rows. `vectors` are the vectors of items and marks with their places' vectors added, `places` rows per sequence.
    `hidden` is added to the attention logits of each place (second last dimension) for each other place (last)."""
    rows = on.dropout(vectors)
    for at in range(shape.blocks):
        rows = on.add(rows, on.dropout(_looked(on, shape, f"block_{at}", rows, hidden, places)))
        inner = on.relu(_dense(on, f"block_{at}/inner", on.normalise(rows, f"block_{at}/between")))
        rows = on.add(rows, on.dropout(_dense(on, f"block_{at}/outer", inner)))
    return on.normalise(rows, "last")


def _looked(on: AttentionOperations, shape: Shape, path: str, rows: Any, hidden: Any, places: int) -> Any:
    width, each = shape.width, shape.width // shape.heads
    both = _dense(on, f"{path}/looked", on.normalise(rows, f"{path}/before"))
    queries, keys, values = (on.heads(on.part(both, at * width, (at + 1) * width), places, shape.heads) for at in range(3))
    shares = on.softmax(on.add(on.matmul(on.times(queries, 1 / math.sqrt(each)), on.turned(keys)), hidden))
    return _dense(on, f"{path}/found", on.joined(on.matmul(on.dropout(shares), values), width))


def _dense(on: AttentionOperations, path: str, rows: Any) -> Any:
    return on.add(on.matmul(rows, on.weight(f"{path}/kernel")), on.weight(f"{path}/bias"))


def only_before(places: int) -> NDArray[np.float32]:
    """Returns the mask of `next`, which hides all later places."""
    mask: NDArray[np.float32] = np.triu(np.full((places, places), NEVER, np.float32), 1)[None, None]
    return mask
