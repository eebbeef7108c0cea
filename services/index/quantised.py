"""Nearly exact, for large catalogues: faiss scans vectors of half a byte a dimension, and what it finds is weighed anew exactly.

faiss holds no copy of the vectors: several times as many rows as are wanted are fetched, and the version's own vectors decide among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from services.index.exact import ExactIndex
from shared.serving.nearest import Keys, best

Array = np.ndarray[Any, Any]
SMALL = 10_000
"""Items: with fewer, or where a scan had to keep every second one, it is no shorter way."""


class QuantisedIndex:
    """Implements CandidateIndex. `scan` is faiss's; `least` rows are fetched however few are wanted, `weighed` for each one of more."""

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
        for at, (query, fetched) in enumerate(zip(queries, np.sort(candidates, axis=1), strict=True)):  # in memory's order
            exact = self._vectors[fetched] @ query
            order = best(exact, self._keys[fetched], k)
            rows[at], scores[at] = fetched[order], exact[order]
        return rows, scores


def read_scan(content: memoryview) -> Any:
    """One thread a search: requests are many, and faiss's threads would wait for each other."""
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))
