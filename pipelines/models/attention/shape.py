"""Sizes of a transformer over items, and the shapes of its arrays. Sizes and arrays are the whole model."""

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
ITEMS, MARKS, PLACES, FEATURES = "items", "marks", "places", "features"
"""Names of the tables of vectors: one for each item code, mark, place in a sequence, and code or number of a feature. The last column of
items and features is the level."""
BEGIN, BACKWARDS, HIDDEN = range(3)
"""Marks: before a sequence, before a sequence read backwards, and at a hidden item. Their codes follow the item codes."""
INNER = 4
"""Width of a block's inner layer, as a multiple of the vectors' width."""
SPREAD = 0.02


@dataclass(frozen=True)
class Shape:
    items: int
    """Number of item codes."""
    width: int
    blocks: int
    heads: int
    length: int
    """Most items of a sequence."""
    objective: Objective
    scale: float = 1.0
    """Factor of the vectors of items and marks before the blocks read them; models of older releases have none."""
    features: int = 0
    """Rows of the table of items' features, which has a level too."""

    @property
    def window(self) -> int:
        """Items of a training window: up to `length` items, and the next item as a target."""
        return self.length + 1

    @property
    def places(self) -> int:
        """Places of a sequence: its items, the mark before them, and for `masked` the hidden item at the end."""
        return self.length + 1 + (self.objective == "masked")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all trained arrays, by path."""
        width, inner = self.width, INNER * self.width
        shapes: dict[str, tuple[int, ...]] = {ITEMS: (self.items, width + 1), MARKS: (3, width), PLACES: (self.places, width)}
        if self.features:
            shapes[FEATURES] = (self.features, width + 1)
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
            raise BadData(
                f"weights.npz: '{path}' does not match model.json: the files are of different models: copy or train the model again"
            )


def begin(shape: Shape, seed: int) -> Weights:
    """Draws each array from the seed and its own path, so that more items leave the other arrays unchanged."""
    return {path: _begun(path, of, seed) for path, of in shape.shapes.items()}


def _begun(path: str, of: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    if len(of) < 2:
        return np.full(of, path.endswith("/gamma"), np.float32)
    if path.endswith(("/found/kernel", "/outer/kernel")):
        return np.zeros(of, np.float32)  # so that a block begins as identity, and an output as the last item
    if path == FEATURES:
        return np.zeros(of, np.float32)
    spread = SPREAD if path in (ITEMS, MARKS, PLACES) else math.sqrt(2 / sum(of))
    values = np.random.default_rng((seed, zlib.crc32(path.encode()))).standard_normal(of, dtype=np.float32) * np.float32(spread)
    if path == ITEMS:
        values[:, -1] = 0
    return values


def grow(shape: Shape, parent: Mapping[str, NDArray[np.float32]], rule: NewRows, seed: int) -> Weights:
    """Returns first weights of a warm run: the parent's, with new item rows by the rule. Shapes are equal except for the items."""
    old = parent[ITEMS]
    if len(old) > shape.items:
        raise Invalid("model.json: the parent has more items than the features of this run, so it is not their parent: start a full run")
    items = grown(old, _begun(ITEMS, shape.shapes[ITEMS], seed), rule)
    return {path: parent[path].copy() for path in shape.shapes} | {ITEMS: items}


def _norm(path: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{path}/gamma": (width,), f"{path}/beta": (width,)}


def _dense(path: str, of: int, to: int) -> dict[str, tuple[int, ...]]:
    return {f"{path}/kernel": (of, to), f"{path}/bias": (to,)}
