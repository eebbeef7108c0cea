"""Approximate index for large catalogues: faiss scans vectors of half a byte per dimension, and its results are scored again exactly.

faiss holds no copy of the vectors: it returns several times the wanted number of rows, and the version's vectors rank these rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from services.index.exact import ExactIndex
from shared.serving.nearest import Keys, best

Array = np.ndarray[Any, Any]
SMALL = 10_000
"""With fewer items, or if a scan returns more than half of the items, the scan saves no time."""


class QuantisedIndex:
    """Implements CandidateIndex. `scan` is a faiss index; a scan returns `weighed` rows per wanted row, and at least `least` rows."""

    def __init__(self, keys: Keys, vectors: Array, scan: Any, weighed: int, least: int) -> None:
        self._keys, self._vectors, self._scan, self._weighed, self._least = keys, vectors, scan, weighed, least
        self._exact = ExactIndex(keys, vectors)

    def nearest(self, queries: Array, k: int) -> tuple[Array, Array]:
        wide = max(k * self._weighed, self._least)
        if k <= 0 or not len(queries) or len(self._keys) < max(SMALL, 2 * wide):
            return self._exact.nearest(queries, k)
        _, candidates = self._scan.search(np.ascontiguousarray(queries, dtype=np.float32), wide)
        rows = np.empty((len(queries), k), dtype=np.intp)
        scores = np.empty((len(queries), k), dtype=np.float32)
        for at, (query, fetched) in enumerate(zip(queries, np.sort(candidates, axis=1), strict=True)):  # in the order of memory
            exact = self._vectors[fetched] @ query
            order = best(exact, self._keys[fetched], k)
            rows[at], scores[at] = fetched[order], exact[order]
        return rows, scores


def read_scan(content: memoryview) -> Any:
    """Loads the faiss index, with one thread per search: with many requests faiss's threads would wait for each other."""
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))
