"""A transformer over sequences, in the few operations that every runtime has: what trains it, what scores it and what is served say this.

A block looks at the places before (or all places), then at each by itself; either is added to what was there. Vectors are normalised
before they are looked at, and once more at the end.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.models.attention.shape import Shape

NEVER = -1e9
"""Added to what is not to be looked at, or chosen."""
SMALLEST = 1e-5
"""Of a variance."""


class Operations(Protocol):
    """Of tensors [sequences x places, width], unless they say otherwise: a place a row."""

    def weight(self, path: str) -> Any: ...
    def matmul(self, left: Any, right: Any) -> Any: ...
    def add(self, left: Any, right: Any) -> Any: ...
    def times(self, rows: Any, factor: float) -> Any: ...
    def part(self, rows: Any, start: int, stop: int) -> Any:
        """Of the width."""

    def heads(self, rows: Any, places: int, count: int) -> Any:
        """[sequences, heads, places, width of a head]."""

    def joined(self, heads: Any, width: int) -> Any:
        """And back."""

    def turned(self, rows: Any) -> Any:
        """The last two dimensions swapped."""

    def softmax(self, rows: Any) -> Any:
        """Over the last dimension."""

    def relu(self, rows: Any) -> Any: ...
    def normalise(self, rows: Any, path: str) -> Any:
        """Over the width."""

    def dropout(self, rows: Any) -> Any: ...


def encode(on: Operations, shape: Shape, vectors: Any, hidden: Any, places: int) -> Any:
    """`vectors`: of items and marks, with their places' added, as many for each sequence. `hidden`: added to what each place (second last)
    sees of each other (last)."""
    rows = on.dropout(vectors)
    for at in range(shape.blocks):
        rows = on.add(rows, on.dropout(_looked(on, shape, f"block_{at}", rows, hidden, places)))
        inner = on.relu(_dense(on, f"block_{at}/inner", on.normalise(rows, f"block_{at}/between")))
        rows = on.add(rows, on.dropout(_dense(on, f"block_{at}/outer", inner)))
    return on.normalise(rows, "last")


def _looked(on: Operations, shape: Shape, path: str, rows: Any, hidden: Any, places: int) -> Any:
    width, each = shape.width, shape.width // shape.heads
    both = _dense(on, f"{path}/looked", on.normalise(rows, f"{path}/before"))
    queries, keys, values = (on.heads(on.part(both, at * width, (at + 1) * width), places, shape.heads) for at in range(3))
    shares = on.softmax(on.add(on.matmul(on.times(queries, 1 / math.sqrt(each)), on.turned(keys)), hidden))
    return _dense(on, f"{path}/found", on.joined(on.matmul(on.dropout(shares), values), width))


def _dense(on: Operations, path: str, rows: Any) -> Any:
    return on.add(on.matmul(rows, on.weight(f"{path}/kernel")), on.weight(f"{path}/bias"))


def only_before(places: int) -> NDArray[np.float32]:
    """What `next` hides: whatever comes later."""
    mask: NDArray[np.float32] = np.triu(np.full((places, places), NEVER, np.float32), 1)[None, None]
    return mask
