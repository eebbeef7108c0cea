"""Retrieval vectors by key, stored with a served unit: embeddings.npz of items, queries.npz of users."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST
from pipelines.features.graph import Graph
from pipelines.models.family import Embeddings

ITEMS, USERS = "embeddings.npz", "queries.npz"
Sides = dict[str, dict[str, NDArray[Any]]]


def vectors_by_key(graph: Graph, items: pl.Series, embeddings: Embeddings) -> Sides:
    """Returns the arrays of each file. `items`: keys of the catalogue's rows."""
    user_keys = graph.key(graph.user).state.values.to_numpy()
    by_key = np.argsort(user_keys)
    return {
        ITEMS: {"items": items.to_numpy(), "vectors": embeddings.vectors},
        USERS: {"users": user_keys[by_key], "vectors": embeddings.queries[FIRST:][by_key]},
    }
