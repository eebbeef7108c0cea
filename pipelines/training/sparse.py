"""Likes as a sparse matrix of ones, and counts of users who like two items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.training.likes import LikePairs, LikesByRow

CELLS = 1 << 24
"""Numbers of a block: 64 MiB of float32."""


def sparse(likes: LikesByRow, columns: int, values: NDArray[np.float32] | None = None) -> Any:
    """Returns a matrix with a row for each row of the likes; without `values` the entries are ones."""
    from scipy.sparse import csr_array

    entries = np.ones(len(likes.others), np.float32) if values is None else values
    return csr_array((entries, likes.others, likes.start), shape=(len(likes.lengths), columns))


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yields slices of rows that fit into `CELLS`."""
    step = max(1, CELLS // max(1, columns))
    for at in range(0, rows, step):
        yield slice(at, min(at + step, rows))


def together(pairs: LikePairs) -> NDArray[np.float32]:
    """Returns [items, items]: how many users like both."""
    by_item, by_user = sparse(pairs.by_item(), pairs.user_count), sparse(pairs.by_user(), pairs.item_count)
    counts = np.empty((pairs.item_count, pairs.item_count), np.float32)
    for rows in blocks(pairs.item_count, pairs.item_count):
        counts[rows] = (by_item[rows] @ by_user).toarray()
    return counts
