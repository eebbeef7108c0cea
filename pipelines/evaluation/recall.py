"""How much of what users liked is among the candidates that are scored at all: nothing that isn't retrieved can be recommended.

Items that the user knows take up places as well, as they do when it is served. Users without a vector get popular items, as then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.evaluation.cases import Cases
from pipelines.evaluation.observed import Observed
from pipelines.features.columns import FIRST
from pipelines.inputs.meetings import Meetings
from pipelines.models.family import Trained
from pipelines.models.popularity import Popularity
from shared.serving.nearest import Rows, best

Retrieve = Callable[[int, int], Rows]
"""The best rows of the catalogue for a user's key."""


def recall(retrieve: Retrieve, cases: Cases, candidates: int) -> Observed:
    """Of each case whether its item is retrieved."""
    found = [np.isin(one.targets, retrieve(one.user, candidates)) for one in cases.users]
    return Observed(cases.owners, np.concatenate(found).astype(np.float64))


def by_popularity(popularity: Popularity) -> Retrieve:
    return lambda user, count: best(popularity.scores, popularity.items, count)


def by_model(model: Trained, meetings: Meetings, popularity: Popularity, users: NDArray[np.int64]) -> Retrieve | None:
    """None where the model has no vectors."""
    found = model.embeddings(meetings.items.columns)
    if found is None:
        return None
    codes = meetings.users.of(users)[meetings.graph.user]
    known = {user: found.queries[code] for user, code in zip(users.tolist(), codes, strict=True) if code >= FIRST}
    return _by_vectors(popularity, found.vectors, known)


def by_files(embeddings: Path, queries: Path, popularity: Popularity) -> Retrieve:
    """As a served version retrieves, in today's catalogue: what it doesn't know it doesn't find."""
    with np.load(embeddings, allow_pickle=False) as stored:
        items, vectors = stored["items"], stored["vectors"]
    with np.load(queries, allow_pickle=False) as stored:
        known = dict(zip(stored["users"].tolist(), stored["vectors"], strict=True))
    aligned = np.zeros((len(popularity.items), vectors.shape[1]), np.float32)
    _, ours, theirs = np.intersect1d(popularity.items, items, return_indices=True)
    aligned[ours] = vectors[theirs]
    return _by_vectors(popularity, aligned, known)


def _by_vectors(popularity: Popularity, vectors: NDArray[np.float32], known: Mapping[int, NDArray[Any]]) -> Retrieve:
    popular = by_popularity(popularity)

    def retrieve(user: int, count: int) -> Rows:
        query = known.get(user)
        return popular(user, count) if query is None else best(vectors @ query, popularity.items, count)

    return retrieve
