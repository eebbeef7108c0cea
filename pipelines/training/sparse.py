"""Likes as a sparse matrix of ones, and counts of shared likes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.training.likes import LikesByRow

CELLS = 1 << 20
"""Numbers of a block: 4 MiB of float32, so that blocks stay in caches and reuse memory."""


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


def together(rows: Any, columns: Any) -> NDArray[np.float32]:
    """Returns [size, size]: how many likes each two of the rows share; `columns` is the transpose of `rows`."""
    size = rows.shape[0]
    counts = np.empty((size, size), np.float32)
    for part in blocks(size, size):
        counts[part] = (rows[part] @ columns).toarray()
    return counts
