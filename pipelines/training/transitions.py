"""Counts which items follow which: for each item, the `count` items that follow it most.

The strength of item b after item a, over all places of a in the sequences, and the `window` items that follow each place:

    sum of 1 / distance  /  n(a) ^ damping

n(a) is the number of places of a. So a higher `damping` reduces the effect of popular items in a user's sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.training.likes import LikesByRow

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Followers:
    """[items, count]: the items that follow each item, and their strengths; missing ones are item 0 with strength 0."""

    items: NDArray[np.int32]
    strengths: Floats

    @property
    def matrix(self) -> Any:
        """A sparse matrix [items, items], from the item before to the item after."""
        from scipy.sparse import csr_array

        items, count = self.items.shape
        return csr_array((self.strengths.reshape(-1), self.items.reshape(-1), np.arange(items + 1) * count), shape=(items, items))


def count_transitions(sequences: LikesByRow, items: int, window: int, damping: float) -> Any:
    """Returns the strengths as a sparse matrix [items, items]."""
    from scipy.sparse import csr_array

    user = np.repeat(np.arange(len(sequences.lengths)), sequences.lengths)
    strengths = csr_array((items, items), dtype=np.float32)
    for distance in range(1, min(window, int(sequences.lengths.max(initial=1)) - 1) + 1):
        same = user[:-distance] == user[distance:]
        places = sequences.others[:-distance][same], sequences.others[distance:][same]
        strengths += csr_array((np.full(len(places[0]), 1 / distance, np.float32), places), shape=(items, items))
    counts = np.maximum(np.bincount(sequences.others, minlength=items), 1)
    return strengths.multiply((counts ** np.float64(-damping)).astype(np.float32)[:, None]).tocsr()


def strongest(matrix: Any, count: int) -> Followers:
    """Returns the strongest followers of each item by the sparse `matrix`, the strongest first; of equal ones the lowest item."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    place = np.arange(len(rows)) - matrix.indptr[rows]
    chosen = place < count
    followers = Followers(np.zeros((matrix.shape[0], count), np.int32), np.zeros((matrix.shape[0], count), np.float32))
    followers.items[rows[chosen], place[chosen]] = matrix.indices[order][chosen]
    followers.strengths[rows[chosen], place[chosen]] = matrix.data[order][chosen]
    return followers
