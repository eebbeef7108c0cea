"""What a transformer over items is: its sizes, and which arrays that comes to. It and the arrays are the model."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipelines.models.new_row_init import grown
from pipelines.models.tables import PRECISION
from shared.contracts.retraining import NewRows
from shared.domain.errors import BadData, Invalid

Weights = dict[str, NDArray[np.float32]]
Objective = Literal["next", "masked"]
ITEMS, MARKS, PLACES = "items", "marks", "places"
"""Paths of the vectors: of items by code, with their level in the last column; of marks; of places in a sequence."""
BEGIN, BACKWARDS, HIDDEN = range(3)
"""Marks: before a sequence, before one that is read backwards, and where an item is to be found. Their codes follow the items'."""
INNER = 4
"""How many times wider than the vectors the inner layer of a block is."""
SPREAD = 0.02


@dataclass(frozen=True)
class Shape:
    items: int
    """Codes."""
    width: int
    blocks: int
    heads: int
    length: int
    """Items that a sequence has at most."""
    objective: Objective

    @property
    def window(self) -> int:
        """Items that are learned from at once: of so many before it the next one is to be told."""
        return self.length + 1

    @property
    def places(self) -> int:
        """With the mark before the items, and the hidden one behind them."""
        return self.length + 1 + (self.objective == "masked")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all that is trained, by path."""
        width, inner = self.width, INNER * self.width
        shapes: dict[str, tuple[int, ...]] = {ITEMS: (self.items, width + 1), MARKS: (3, width), PLACES: (self.places, width)}
        for at in range(self.blocks):
            shapes |= _norm(f"block_{at}/before", width) | _dense(f"block_{at}/looked", width, 3 * width)
            shapes |= _dense(f"block_{at}/found", width, width) | _norm(f"block_{at}/between", width)
            shapes |= _dense(f"block_{at}/inner", width, inner) | _dense(f"block_{at}/outer", inner, width)
        return shapes | _norm("last", width)

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def size(self) -> int:
        """Bytes."""
        return PRECISION * self.parameters


def check_weights(shape: Shape, weights: Mapping[str, NDArray[np.float32]]) -> None:
    for path, wanted in shape.shapes.items():
        if path not in weights or weights[path].shape != wanted:
            raise BadData(f"weights.npz: '{path}' isn't as model.json says: the files are not of one model: copy or train it anew")


def begin(shape: Shape, seed: int) -> Weights:
    """Each array from the seed and its own path, so that more items change nothing in the rest."""
    return {path: _begun(path, of, seed) for path, of in shape.shapes.items()}


def _begun(path: str, of: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    if len(of) < 2:
        return np.full(of, path.endswith("/gamma"), np.float32)
    spread = SPREAD if path in (ITEMS, MARKS, PLACES) else math.sqrt(2 / sum(of))
    values = np.random.default_rng((seed, zlib.crc32(path.encode()))).standard_normal(of, dtype=np.float32) * np.float32(spread)
    if path == ITEMS:
        values[:, -1] = 0
    return values


def grow(shape: Shape, parent: Mapping[str, NDArray[np.float32]], rule: NewRows, seed: int) -> Weights:
    """A warm run's first weights: its parent's, of the same shape but for the items; new ones begin by the rule."""
    old = parent[ITEMS]
    if len(old) > shape.items:
        raise Invalid("model.json: the parent knows more items than the features of this run: they are not of one line: start a full run")
    items = grown(old, _begun(ITEMS, shape.shapes[ITEMS], seed), rule)
    return {path: parent[path].copy() for path in shape.shapes} | {ITEMS: items}


def _norm(path: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{path}/gamma": (width,), f"{path}/beta": (width,)}


def _dense(path: str, of: int, to: int) -> dict[str, tuple[int, ...]]:
    return {f"{path}/kernel": (of, to), f"{path}/bias": (to,)}
