"""The order in which a row group's rows come in an epoch."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Orders:
    """A permutation for each chunk and epoch. Where many have as many rows, each is one drawn at random after another one that is turned
    by a number drawn at random: as likely to be any as if it was drawn alone, at a fifth of the price."""

    FEW = 4

    def __init__(self, seed: int, sizes: Sequence[int], room: int) -> None:
        """`room`: bytes for those that are drawn once."""
        self._seed, self._sizes = seed, sizes
        self.often: set[int] = set()
        for rows, times in sorted(Counter(sizes).items(), key=lambda one: (-one[1], one[0])):
            size = 3 * self.FEW * 8 * rows
            if times > 4 * self.FEW and size <= room:
                self.often.add(rows)
                room -= size
        self._drawn: dict[int, list[NDArray[np.int64]]] = {}
        self._lock = threading.Lock()

    def of(
        self, epoch: int, chunk: int, first: int = 0, last: int | None = None, out: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """From place `first` on. `out`: memory for as many, which may be used."""
        rows = self._sizes[chunk]
        random = np.random.default_rng((self._seed, epoch, 3, chunk))
        if rows not in self.often:
            return random.permutation(rows)[first:last]
        drawn = self._few(rows)
        one, other, turn = random.integers(0, (self.FEW, self.FEW, rows)).tolist()
        places = drawn[self.FEW + other][first:last]
        found: NDArray[np.int64] = drawn[one][turn : turn + rows].take(places, out=None if out is None else out[: len(places)], mode="clip")
        return found

    def _few(self, rows: int) -> list[NDArray[np.int64]]:
        """The first ones twice over, so that they can be turned."""
        with self._lock:
            if rows not in self._drawn:
                random = np.random.default_rng((self._seed, 2, rows))
                drawn = [random.permutation(rows) for _ in range(2 * self.FEW)]
                self._drawn[rows] = [np.concatenate([one, one]) for one in drawn[: self.FEW]] + drawn[self.FEW :]
            return self._drawn[rows]
