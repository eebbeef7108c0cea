"""Exact index: scores every item for every query, one matrix product per batch of queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from shared.serving.nearest import Keys, best

CELLS = 1 << 24
"""Maximum number of scores in memory: 64 MiB."""
Array = np.ndarray[Any, Any]


class ExactIndex:
    """Implements CandidateIndex."""

    def __init__(self, keys: Keys, vectors: Array) -> None:
        self._keys, self._vectors = keys, vectors

    def nearest(self, queries: Array, k: int) -> tuple[Array, Array]:
        count = max(0, min(k, len(self._keys)))
        rows = np.empty((len(queries), count), dtype=np.intp)
        scores = np.empty((len(queries), count), dtype=np.float32)
        if not count:
            return rows, scores
        step = max(1, CELLS // len(self._keys))
        for start in range(0, len(queries), step):
            for at, row_scores in enumerate(queries[start : start + step] @ self._vectors.T, start):
                rows[at] = best(row_scores, self._keys, count)
                scores[at] = row_scores[rows[at]]
        return rows, scores
