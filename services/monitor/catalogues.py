"""How many items each version's catalogue has: a version never changes, so it is read once."""

from __future__ import annotations

import io
import json

import numpy as np

from shared.contracts.strict import read
from shared.ports import ArtifactStore, Registry
from shared.serving.signature import Signature


class CatalogueSizes:
    def __init__(self, registry: Registry, artifacts: ArtifactStore) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._known: dict[tuple[str, int], int] = {}

    def of(self, recommender: str, version: int) -> int:
        key = (recommender, version)
        if key not in self._known:
            files = self._registry.get(recommender, version).files
            signature = read(Signature, json.loads(self._artifacts.read(files["signature.json"])), "signature.json")
            with np.load(io.BytesIO(self._artifacts.read(files["catalogue.npz"])), allow_pickle=False) as catalogue:
                self._known[key] = len(catalogue[signature.item])
        return self._known[key]
