"""Catalogues that versions were exported with. A version never changes, so results can be cached."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from shared.contracts.strict import read
from shared.ports import ArtifactStore, Registry
from shared.serving.signature import Signature


@contextmanager
def catalogue_of(
    registry: Registry, artifacts: ArtifactStore, recommender: str, version: int
) -> Iterator[tuple[Signature, Mapping[str, np.ndarray[Any, Any]]]]:
    """Yields the version's signature, and its items by column; a column is read on access."""
    files = registry.get(recommender, version).files
    signature = read(Signature, json.loads(artifacts.read(files["signature.json"])), "signature.json")
    with np.load(io.BytesIO(artifacts.read(files["catalogue.npz"])), allow_pickle=False) as catalogue:
        yield signature, catalogue


class CatalogueSizes:
    """Number of items in each version's catalogue, cached."""

    def __init__(self, registry: Registry, artifacts: ArtifactStore) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._sizes: dict[tuple[str, int], int] = {}

    def of(self, recommender: str, version: int) -> int:
        key = (recommender, version)
        if key not in self._sizes:
            with catalogue_of(self._registry, self._artifacts, recommender, version) as (signature, catalogue):
                self._sizes[key] = len(catalogue[signature.item])
        return self._sizes[key]
