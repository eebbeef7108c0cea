"""A version's vectors in the gateway: retrieval by user, and similar items.

Vectors are read once per version and shared; an index adds little memory. Requests copy no vectors.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.gateway.sorted_keys import find
from shared.domain.errors import Unavailable
from shared.ports import CandidateIndex
from shared.serving.nearest import Keys, Rows, best

Array = np.ndarray[Any, Any]

_FADES = 0.8
"""Weight of an item relative to the next newer item."""


@dataclass(frozen=True, eq=False)
class VersionVectors:
    """Vectors of items, by row of the catalogue, and of known users, by key. Rows after the last one, of new items, have zero vectors."""

    keys: Keys
    items: Array
    users: Keys
    queries: Array
    index: CandidateIndex
    _norms: Array

    def retrieve(self, user: int, n: int) -> Rows | None:
        return self.retrieve_many([user], n)[0]

    def retrieve_many(self, users: Sequence[int], n: int) -> list[Rows | None]:
        """Searches the index once for all users; None for a user without a vector."""
        neighbours: list[Rows | None] = [None] * len(users)
        places, there = find(self.users, np.asarray(users, dtype=np.int64))
        present = np.flatnonzero(there)
        if len(present):
            rows, _ = self.index.nearest(self.queries[places[present]], n)
            for at, chosen in zip(present.tolist(), rows, strict=True):
                neighbours[at] = chosen
        return neighbours

    def directions(self, rows: Rows) -> Array:
        """Returns unit vectors, whose dot products are cosines; zero for zero vectors."""
        there = rows < len(self._norms)
        norms = self._norms[rows[there]]
        directions = np.zeros((len(rows), self.items.shape[1]), self.items.dtype)
        directions[there] = self.items[rows[there]] / np.where(norms > 0, norms, np.inf)[:, None]
        return directions

    def alike(self, rows: Rows, n: int) -> Rows:
        """Returns the items most similar to all of `rows` together, without `rows`; later rows weigh more. Zero vectors tell nothing: of
        these alone, the result is empty."""
        there = rows[rows < len(self._norms)]
        telling = there[self._norms[there] > 0]
        if not len(telling):
            return np.empty(0, np.intp)
        weights = _FADES ** np.arange(len(telling))[::-1]
        query = (weights @ self.directions(telling))[None, :].astype(np.float32)
        (nearest,), _ = self.index.nearest(query, min(n + len(rows), len(self.keys)))
        similar: Rows = nearest[~np.isin(nearest, rows)][:n]
        return similar

    def similar(self, row: int, n: int) -> Rows:
        """Returns the most similar items by cosine, without the item itself and without zero vectors."""
        if row >= len(self._norms) or not self._norms[row]:
            return np.empty(0, dtype=np.intp)
        cosines = (self.items @ self.items[row]) / np.where(self._norms > 0, self._norms, np.inf)
        cosines[row] = -np.inf
        rows = best(cosines, self.keys, min(n, len(self.keys) - 1))
        return rows[self._norms[rows] > 0]


def build_vectors(keys: Keys, items: Array, users: Keys, queries: Array, index: CandidateIndex) -> VersionVectors:
    return VersionVectors(keys, items, users, queries, index, np.linalg.norm(items, axis=1))


def read_vectors(content: bytes, place: str, key: str) -> tuple[Keys, Array]:
    """Reads the arrays `key` (int64) and `vectors` (float32, finite), of equal length. Never unpickles."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            keys, vectors = stored[key], np.ascontiguousarray(stored["vectors"])
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise Unavailable(f"{place}: cannot be read: {error}") from None
    if keys.ndim != 1 or keys.dtype != np.int64 or vectors.ndim != 2 or vectors.dtype != np.float32 or len(keys) != len(vectors):
        raise Unavailable(f"{place}: expected one int64 '{key}' and one float32 vector per row, got {keys.dtype} and {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise Unavailable(f"{place}: the vectors contain NaN or infinite values")
    return keys, vectors
