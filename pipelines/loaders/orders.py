"""Random order of a row group's rows in an epoch."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MOST = 2**30


class ChunkOrders:
    """A permutation for each chunk and epoch.

    If many chunks have the same number of rows, their orders come from a few permutations that are drawn once: each order is a permutation,
    rotated and shifted by two new random numbers. Each row is still equally likely at each place, at a quarter of the cost.
    """

    FEW = 4

    def __init__(self, seed: int, sizes: Sequence[int], room: int) -> None:
        """`room` is the memory in bytes for the reused permutations."""
        self._seed, self._sizes = seed, np.array(sizes, np.int64)
        self.often: set[int] = set()
        for rows, times in sorted(Counter(sizes).items(), key=lambda pair: (-pair[1], pair[0])):
            size = self.FEW * 2 * 4 * rows
            if times > 2 * self.FEW and size <= room and rows < _MOST:
                self.often.add(rows)
                room -= size
        self._drawn: dict[int, list[NDArray[np.int32]]] = {}
        self._numbers: tuple[int, list[list[int]]] = (-1, [])
        self._lock = threading.Lock()

    def of(
        self, epoch: int, chunk: int, first: int = 0, last: int | None = None, out: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Returns the order from place `first` to `last`; `out` is memory that may be used."""
        rows = int(self._sizes[chunk])
        if rows not in self.often:
            return np.random.default_rng((self._seed, epoch, 3, chunk)).permutation(rows)[first:last]
        few, (which, turn, on) = self._few(rows, epoch, chunk)
        moved = few[which][turn : turn + rows][first:last] + np.int32(on)
        # Values beyond the end wrap around; a negative value is large as an unsigned number.
        moved = np.minimum(moved.view(np.uint32), (moved - np.int32(rows)).view(np.uint32))
        if out is None:
            return moved.astype(np.int64)
        out[: len(moved)] = moved
        return out[: len(moved)]

    def _few(self, rows: int, epoch: int, chunk: int) -> tuple[list[NDArray[np.int32]], list[int]]:
        """Returns the reused permutations (each twice in a row, for rotation), and the choice, rotation and shift of the chunk."""
        with self._lock:
            if rows not in self._drawn:
                random = np.random.default_rng((self._seed, 2, rows))
                drawn = (random.permutation(rows).astype(np.int32) for _ in range(self.FEW))
                self._drawn[rows] = [np.concatenate([order, order]) for order in drawn]
            if self._numbers[0] != epoch:
                random = np.random.default_rng((self._seed, epoch, 3))
                numbers = random.integers(0, np.stack([np.full_like(self._sizes, self.FEW), self._sizes, self._sizes]).clip(1))
                self._numbers = epoch, numbers.T.tolist()
            return self._drawn[rows], self._numbers[1][chunk]
