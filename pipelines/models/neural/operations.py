"""A network's operations in Keras, for training on any of its frameworks."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pipelines.models.neural.arrays import load_arrays
from pipelines.models.neural.network import FLATTEST, SHORTEST, SMALLEST, ColumnSelection, Network, Operations

MOMENTUM = 0.9
"""Share of the moving mean and variance that a step keeps."""


Tiles = Mapping[int, tuple[int, ...]]
"""By width, the widths of the parts of a vector."""


class KerasOperations(Operations):
    """Operations in Keras; layers compute in `half` if given, else in float32. After a use, `moved` holds the new moving weights.

    `tiles` holds, by width, how vectors that consist only of parts are split: in one split, so that their gradient is assembled once.
    """

    def __init__(
        self, weights: Mapping[str, Any], moving: Mapping[str, Any], chance: Any, half: str | None, tiles: Tiles | None = None
    ) -> None:
        from keras import config

        super().__init__(load_arrays(), weights)
        self._torch = importlib.import_module("torch") if config.backend() == "torch" else None
        self._moving, self._chance, self._half = moving, chance, half
        self._tiles, self._cut = tiles or {}, dict[int, tuple[Any, dict[int, Any]]]()
        self.moved: dict[str, Any] = {}

    def weight(self, path: str) -> Any:
        value = self._weights[path].value
        return self._arrays.cast(value, self._half) if self._half else value

    def dense(self, rows: Any, kernel: Any, bias: Any) -> Any:
        """In float32 on torch, the product takes the layout of torch's own layers, in which its kernels are fastest."""
        if self._torch is None or self._half:
            return super().dense(rows, kernel, bias)
        return self._torch.nn.functional.linear(rows, self._arrays.transpose(kernel).contiguous(), bias)

    def part(self, rows: Any, start: int, stop: int) -> Any:
        sizes = self._tiles.get(rows.shape[1])
        if sizes is None:
            return rows[:, start:stop]
        if id(rows) not in self._cut:
            starts = [*accumulate(sizes[:-1], initial=0)]
            parts = self._arrays.split(rows, starts[1:], axis=1) if self._torch is None else rows.split(sizes, 1)
            self._cut[id(rows)] = rows, dict(zip(starts, parts, strict=True))  # the reference keeps the id unique
        return self._cut[id(rows)][1][start]

    def relu(self, rows: Any) -> Any:
        return self._arrays.relu(rows)

    def interact(self, parts: Sequence[Any], places: Sequence[int]) -> Any:
        vectors = self._arrays.stack(parts, axis=1)
        square = self._arrays.matmul(vectors, self._arrays.transpose(vectors, (0, 2, 1)))
        return self._arrays.take(self._arrays.reshape(square, (-1, len(parts) ** 2)), np.array(places, np.int32), axis=1)

    def scaled(self, rows: Any, length: float) -> Any:
        wide = self._arrays.cast(rows, "float32")
        root = self._arrays.sqrt(self._arrays.sum(wide * wide, axis=1, keepdims=True) + SHORTEST)
        return self._arrays.cast(wide * (length / root), rows.dtype)

    def dropout(self, rows: Any, rate: float) -> Any:
        from keras import random

        return random.dropout(rows, rate, seed=self._chance) if rate else rows

    def normalise(self, rows: Any, path: str) -> Any:
        wide = self._arrays.cast(rows, "float32")
        mean, variance = self._moments(wide)
        for name, value in (("mean", mean), ("variance", variance)):
            self.moved[f"{path}/{name}"] = self._moving[f"{path}/{name}"] * MOMENTUM + value * (1 - MOMENTUM)
        return self._scaled(wide, path, mean, variance, rows.dtype)

    def level(self, rows: Any, gamma: Any, beta: Any) -> Any:
        return level(rows, gamma, beta)

    def _moments(self, wide: Any) -> tuple[Any, Any]:
        moments: tuple[Any, Any] = self._arrays.moments(wide, axes=[0])
        return moments

    def _scaled(self, wide: Any, path: str, mean: Any, variance: Any, dtype: Any) -> Any:
        scale = self._weights[f"{path}/gamma"] / self._arrays.sqrt(variance + SMALLEST)
        return self._arrays.cast((wide - mean) * scale + self._weights[f"{path}/beta"], dtype)


def tiles_of(network: Network, features: Mapping[str, int]) -> Tiles:
    """Returns the tiles by width, if all Part nodes cut vectors of that width in the same way and without a gap."""
    widths, cuts = network.widths(features), dict[str, set[tuple[int, int]]]()
    for node in network.nodes:
        if isinstance(node, ColumnSelection):
            cuts.setdefault(node.of[0], set()).add((node.start, node.stop))
    ways_by_width = dict[int, set[tuple[tuple[int, int], ...]]]()
    for name, cut in cuts.items():
        ways_by_width.setdefault(widths[name], set()).add(tuple(sorted(cut)))
    tiled = {width: ways.pop() for width, ways in ways_by_width.items() if len(ways) == 1}
    return {
        width: tuple(stop - start for start, stop in way)
        for width, way in tiled.items()
        if [0, *(stop for _, stop in way)] == [*(start for start, _ in way), width]
    }


def level(rows: Any, gamma: Any, beta: Any, least: float = FLATTEST) -> Any:
    """Normalises each row by its own mean and variance; `least` is added to the variance."""
    ops = load_arrays()
    wide = ops.cast(rows, "float32")
    wide = wide - ops.mean(wide, axis=1, keepdims=True)
    wide = wide / ops.sqrt(ops.mean(wide * wide, axis=1, keepdims=True) + least)
    return ops.cast(wide, rows.dtype) * gamma + beta


class ServedOperations(KerasOperations):
    """The network as it is served; the NumPy scores are compared with it."""

    def dropout(self, rows: Any, rate: float) -> Any:
        return rows

    def normalise(self, rows: Any, path: str) -> Any:
        return self._scaled(rows, path, self._moving[f"{path}/mean"], self._moving[f"{path}/variance"], rows.dtype)
