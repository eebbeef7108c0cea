"""Feature values of items in the serving version's catalogue, over which drift is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from services.monitor.catalogues import catalogue_of
from shared.domain.drift.reading import DriftColumn, DriftValue
from shared.ports import ArtifactStore, Like, Registry

Content = tuple[tuple[str, ...], float | None]
"""Texts, or a number."""


class ItemValues:
    """Items of one version: values by column and item. The column of the item key only shows which items exist."""

    def __init__(self, item: str, columns: Mapping[str, Mapping[int, Content]]) -> None:
        self.item = item
        self._columns = columns

    def columns(self, first: Sequence[Like], now: Sequence[Like]) -> list[DriftColumn]:
        """Returns the columns of likes at two times. Items unknown to the version count in the key's column alone: they have no features
        yet."""
        columns = []
        for name, contents in self._columns.items():
            key = name == self.item
            columns.append(DriftColumn("key" if key else "feature", name, _values(first, contents, key), _values(now, contents, key)))
        return columns


class ItemFeatures:
    """Reads a version's catalogue once; keeps the newest per recommender."""

    def __init__(self, registry: Registry, artifacts: ArtifactStore) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._cached: dict[str, tuple[int, ItemValues]] = {}

    def of(self, recommender: str, version: int) -> ItemValues:
        cached = self._cached.get(recommender)
        if cached is None or cached[0] != version:
            cached = (version, self._read(recommender, version))
            self._cached[recommender] = cached
        return cached[1]

    def _read(self, recommender: str, version: int) -> ItemValues:
        with catalogue_of(self._registry, self._artifacts, recommender, version) as (signature, catalogue):
            items = catalogue[signature.item].tolist()
            columns: dict[str, dict[int, Content]] = {signature.item: dict.fromkeys(items, ((), None))}
            for column in signature.side("item"):
                if column.name != signature.item:
                    content = map(
                        _number if column.dtype == "float32" and column.width is None else _texts, catalogue[column.name].tolist()
                    )
                    columns[column.name] = dict(zip(items, content, strict=True))
        return ItemValues(signature.item, columns)


def _values(likes: Sequence[Like], contents: Mapping[int, Content], key: bool) -> tuple[DriftValue, ...]:
    if key:
        return tuple(DriftValue(like.user, ("known",) if like.item in contents else None) for like in likes)
    pairs = ((like.user, contents[like.item]) for like in likes if like.item in contents)
    return tuple(DriftValue(user, texts, number) for user, (texts, number) in pairs)


def _texts(value: object) -> Content:
    """Converts a value, or a padded list, to texts without the padding."""
    values = value if isinstance(value, list) else [value]
    return tuple(str(element) for element in values if element != ""), None


def _number(value: float) -> Content:
    return ((), value) if math.isfinite(value) else ((), None)
