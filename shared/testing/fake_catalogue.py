"""Fake catalogue in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from shared.domain.catalogue import ItemWrite, alike, written
from shared.domain.errors import no_such
from shared.ports import CatalogueHead, CatalogueItem


class FakeCatalogue:
    def __init__(self) -> None:
        self._items: dict[str, dict[int, CatalogueItem]] = {}
        self._heads: dict[str, CatalogueHead] = {}
        self._deleted: set[str] = set()
        self._lock = threading.Lock()

    def put(self, recommender: str, writes: Sequence[ItemWrite], now: datetime, overwrite: bool) -> int:
        with self._lock:
            if recommender in self._deleted:
                raise no_such("recommender", recommender)
            items = self._items.setdefault(recommender, {})
            after: dict[int, CatalogueItem] = {}
            for write in writes:
                before = after.get(write.item) or items.get(write.item)
                attributes, available = written(before, write, overwrite)
                after[write.item] = CatalogueItem(write.item, attributes, available)
            return self._change(recommender, after, now)

    def delete(self, recommender: str, items: Sequence[int], now: datetime) -> int:
        with self._lock:
            if recommender in self._deleted:
                raise no_such("recommender", recommender)
            there = self._items.get(recommender, {})
            gone = {item: CatalogueItem(item, {}, False, True) for item in items if item in there and not there[item].deleted}
            return self._change(recommender, gone, now)

    def get(self, recommender: str, item: int) -> CatalogueItem:
        stored = self._items.get(recommender, {}).get(item)
        if stored is None or stored.deleted:
            raise no_such("item", str(item))
        return stored

    def page(self, recommender: str, limit: int, after: int | None = None) -> Sequence[CatalogueItem]:
        items = sorted(self._items.get(recommender, {}).items())
        return [stored for item, stored in items if not stored.deleted and (after is None or item > after)][:limit]

    def heads(self) -> Mapping[str, CatalogueHead]:
        return dict(self._heads)

    def changes(self, recommender: str, since: int, limit: int) -> Sequence[CatalogueItem]:
        items = sorted(self._items.get(recommender, {}).values(), key=lambda item: item.revision)
        return [item for item in items if item.revision > since][:limit]

    def forget(self, recommender: str) -> None:
        """Does what the recommender's deletion does to its catalogue."""
        self._deleted.add(recommender)
        if recommender in self._heads:
            revision = self._heads[recommender].revision + 1
            self._heads[recommender] = CatalogueHead(revision, revision)
            self._items.pop(recommender, None)

    def revive(self, recommender: str) -> None:
        self._deleted.discard(recommender)

    def _change(self, recommender: str, after: Mapping[int, CatalogueItem], now: datetime) -> int:
        items = self._items.setdefault(recommender, {})
        head = self._heads.get(recommender, CatalogueHead(0, 0))
        changed = 0
        for item, updated in after.items():
            before = items.get(item)
            if before is None or not alike(before, updated):
                changed += 1
                items[item] = replace(updated, revision=head.revision + changed, updated_at=now)
        if changed:
            self._heads[recommender] = CatalogueHead(head.revision + changed, head.cleared)
        return changed
