"""The feature values of each item, as the serving version's catalogue has them: what drift is measured over."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import numpy as np

from shared.contracts.strict import read
from shared.ports import ArtifactStore, Registry
from shared.serving.signature import Signature

Values = Mapping[str, Mapping[int, tuple[str, ...]]]
"""By feature, by item: the values."""


class ItemFeatures:
    """Reads a version's catalogue once; keeps the newest of each recommender."""

    def __init__(self, registry: Registry, artifacts: ArtifactStore) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._known: dict[str, tuple[int, Values]] = {}

    def of(self, recommender: str, version: int) -> Values:
        known = self._known.get(recommender)
        if known is None or known[0] != version:
            known = (version, self._read(recommender, version))
            self._known[recommender] = known
        return known[1]

    def _read(self, recommender: str, version: int) -> Values:
        files = self._registry.get(recommender, version).files
        signature = read(Signature, json.loads(self._artifacts.read(files["signature.json"])), "signature.json")
        with np.load(io.BytesIO(self._artifacts.read(files["catalogue.npz"])), allow_pickle=False) as catalogue:
            items = catalogue[signature.item].tolist()
            features = [one for one in signature.side("item") if one.name != signature.item]
            return {one.name: dict(zip(items, map(_texts, catalogue[one.name].tolist()), strict=True)) for one in features}


def _texts(value: object) -> tuple[str, ...]:
    """One value or a padded list of them, as text without the padding."""
    values = value if isinstance(value, list) else [value]
    return tuple(str(one) for one in values if one != "")
