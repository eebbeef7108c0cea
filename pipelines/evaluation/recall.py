"""Recall of retrieval: the share of liked items among the candidates that are scored.

Items that the user knows take up places as well, as in serving. Users without a vector get popular items, as in serving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays
from pipelines.evaluation.cases import Cases, Ints
from pipelines.evaluation.per_user import PerUser
from pipelines.evaluation.ranking import CELLS
from pipelines.features.columns import FIRST
from pipelines.inputs.eval_pairs import EvalPairs
from pipelines.inputs.tables import placed
from pipelines.models.family import Trained
from pipelines.models.popularity_baseline import Popularity
from shared.serving.nearest import Rows, best

Retrieve = Callable[[Ints, int], Iterable[Rows]]
"""Returns the best rows of the catalogue for each user's key, as many as wanted."""


def recall(retrieve: Retrieve, cases: Cases, candidates: int) -> PerUser:
    """Returns for each case whether its item is retrieved."""
    retrieved = [np.isin(user.targets, rows) for user, rows in zip(cases.users, retrieve(cases.keys, candidates), strict=True)]
    return PerUser(cases.owners, np.concatenate(retrieved).astype(np.float64))


def by_popularity(popularity: Popularity) -> Retrieve:
    return lambda users, count: [best(popularity.scores, popularity.items, count)] * len(users)


def by_model(model: Trained, meetings: EvalPairs, popularity: Popularity, users: NDArray[np.int64]) -> Retrieve | None:
    """Retrieves with the model's embeddings; returns None if it has none."""
    embeddings = model.embeddings(meetings.items.columns)
    if embeddings is None:
        return None
    codes = meetings.users.of(users)[meetings.graph.user]
    in_vocabulary = codes >= FIRST
    return _by_vectors(popularity, embeddings.vectors, users[in_vocabulary], embeddings.queries[codes[in_vocabulary]])


def by_files(embeddings: Path, queries: Path, popularity: Popularity) -> Retrieve:
    """Retrieves as a served version does, in the present catalogue: items that the version does not know are not found."""
    item_arrays, query_arrays = read_arrays(embeddings), read_arrays(queries)
    items, vectors = item_arrays["items"], item_arrays["vectors"]
    aligned = np.zeros((len(popularity.items), vectors.shape[1]), np.float32)
    _, ours, theirs = np.intersect1d(popularity.items, items, return_indices=True)
    aligned[ours] = vectors[theirs]
    return _by_vectors(popularity, aligned, query_arrays["users"], query_arrays["vectors"])


def _by_vectors(popularity: Popularity, vectors: NDArray[np.float32], users: Ints, queries: NDArray[np.float32]) -> Retrieve:
    """Retrieves by vectors; `users` are the users with a query, in the order of `queries`."""
    order = np.argsort(users)
    ordered, step = users[order], max(1, CELLS // len(vectors))

    def retrieve(wanted: Ints, count: int) -> Iterator[Rows]:
        popular = best(popularity.scores, popularity.items, count)
        for start in range(0, len(wanted), step):
            places = placed(ordered, wanted[start : start + step])
            has_query = places < len(order)
            scores = iter(queries[order[places[has_query]]] @ vectors.T)
            yield from (best(next(scores), popularity.items, count) if there else popular for there in has_query)

    return retrieve
