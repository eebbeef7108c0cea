"""The feature values of each item, as the serving version's catalogue has them: what drift is measured over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from services.monitor.catalogues import catalogue_of
from shared.domain.drift.reading import Column, Value
from shared.ports import ArtifactStore, Like, Registry

Content = tuple[tuple[str, ...], float | None]
"""Texts, or a number."""


class Catalogue:
    """One version's items: by column, by item, what is there. The item key's own column holds nothing but which items there are."""

    def __init__(self, item: str, columns: Mapping[str, Mapping[int, Content]]) -> None:
        self.item = item
        self._columns = columns

    def columns(self, first: Sequence[Like], now: Sequence[Like]) -> list[Column]:
        """Of likes at two times. What the version doesn't know counts in the key's column alone: it has no features yet."""
        found = []
        for name, known in self._columns.items():
            key = name == self.item
            found.append(Column("key" if key else "feature", name, _values(first, known, key), _values(now, known, key)))
        return found


class ItemFeatures:
    """Reads a version's catalogue once; keeps the newest of each recommender."""

    def __init__(self, registry: Registry, artifacts: ArtifactStore) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._known: dict[str, tuple[int, Catalogue]] = {}

    def of(self, recommender: str, version: int) -> Catalogue:
        known = self._known.get(recommender)
        if known is None or known[0] != version:
            known = (version, self._read(recommender, version))
            self._known[recommender] = known
        return known[1]

    def _read(self, recommender: str, version: int) -> Catalogue:
        with catalogue_of(self._registry, self._artifacts, recommender, version) as (signature, catalogue):
            items = catalogue[signature.item].tolist()
            columns: dict[str, dict[int, Content]] = {signature.item: dict.fromkeys(items, ((), None))}
            for one in signature.side("item"):
                if one.name != signature.item:
                    content = map(_number if one.dtype == "float32" and one.width is None else _texts, catalogue[one.name].tolist())
                    columns[one.name] = dict(zip(items, content, strict=True))
        return Catalogue(signature.item, columns)


def _values(likes: Sequence[Like], known: Mapping[int, Content], key: bool) -> tuple[Value, ...]:
    if key:
        return tuple(Value(one.user, ("known",) if one.item in known else None) for one in likes)
    found = ((one.user, known[one.item]) for one in likes if one.item in known)
    return tuple(Value(user, texts, number) for user, (texts, number) in found)


def _texts(value: object) -> Content:
    """One value or a padded list of them, as text without the padding."""
    values = value if isinstance(value, list) else [value]
    return tuple(str(one) for one in values if one != ""), None


def _number(value: float) -> Content:
    return ((), value) if math.isfinite(value) else ((), None)
