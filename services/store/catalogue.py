"""Catalogues in SQL: one row per item, and one row per recommender with the newest revision.

Writers of one recommender take a lock, so revisions become visible in order and a reader misses none. A gateway reads the newest
revision many times a second, and reads items only when the revision has increased.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Connection, Engine, Row, any_, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.store.columns import Damage
from services.store.deletion_guard import refuse_deleted
from services.store.locks import take_turn
from services.store.tables import catalogue_items, catalogues
from shared.domain.catalogue import EACH_NAME, ItemWrite, alike, seeded, times_after, written
from shared.domain.errors import Invalid, Unreadable, no_such
from shared.ports import CatalogueHead, CatalogueItem, SeedProgress, SeedRow

log = logging.getLogger(__name__)

_AT_ONCE = 500
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_DAMAGED = -1
"""Revision of an unreadable item: any write counts as a change."""

_item = catalogue_items.c
_OF = select(catalogue_items).where(_item.recommender == bindparam("name"))
_TOUCH = (
    update(catalogue_items)
    .where(_item.recommender == bindparam("at_recommender"), _item.item == bindparam("at_item"))
    .values(times=bindparam("new_times"))
)
_NAMED = _OF.where(_item.item.in_(bindparam("items", expanding=True)))
_NAMED_AS_ARRAY = _OF.where(_item.item == any_(bindparam("items", type_=ARRAY(BigInteger))))
"""For PostgreSQL, which compares each row with all values of an IN list, one by one, if it has too few statistics of the table."""


class SqlCatalogue:
    """Implements Catalogue."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
        new = insert(catalogue_items)
        updates = {column.name: new.excluded[column.name] for column in _item if not column.primary_key}
        self._put = new.on_conflict_do_update(index_elements=[_item.recommender, _item.item], set_=updates)
        self._begin = insert(catalogues).on_conflict_do_nothing(index_elements=[catalogues.c.recommender])
        self._named = _NAMED_AS_ARRAY if engine.dialect.name == "postgresql" else _NAMED
        self._damaged: set[tuple[str, int, int]] = set()

    def put(self, recommender: str, writes: Sequence[ItemWrite], now: datetime, overwrite: bool) -> int:
        with self._engine.begin() as connection:
            take_turn(connection, "catalogue", recommender)
            refuse_deleted(connection, recommender)
            before = self._present(connection, recommender, {write.item for write in writes})
            after: dict[int, CatalogueItem] = {}
            for write in writes:
                current = after.get(write.item) or before.get(write.item)
                _check_same_id(current, write.id)
                attributes, available = written(current, write, overwrite)
                times = times_after(current, write, overwrite, _micros(now))
                created_at = now if current is None or current.deleted else current.created_at
                after[write.item] = CatalogueItem(write.item, attributes, available, id=write.id, times=times, created_at=created_at)
            self._touch(connection, recommender, before, after)
            return self._write(connection, recommender, before, after, now)

    def seed(self, recommender: str, rows: Mapping[int, SeedRow], at: datetime) -> int:
        with self._engine.begin() as connection:
            take_turn(connection, "catalogue", recommender)
            refuse_deleted(connection, recommender)
            before = self._present(connection, recommender, rows)
            after: dict[int, CatalogueItem] = {}
            for item, row in rows.items():
                current = before.get(item)
                _check_same_id(current, row.id)
                attributes = seeded(current, row.attributes, _micros(at))
                if attributes is not None:
                    new = CatalogueItem(item, attributes, updated_at=at, id=row.id, created_at=at)
                    after[item] = new if current is None else replace(current, attributes=attributes, updated_at=_later(current, at))
            return self._write(connection, recommender, before, after, at)

    def mark_seed(self, recommender: str, progress: SeedProgress) -> None:
        columns = {"seed_version": progress.version, "seed_digest": progress.digest, "seed_left": progress.left}
        with self._engine.begin() as connection:
            take_turn(connection, "catalogue", recommender)
            refuse_deleted(connection, recommender)
            connection.execute(self._begin, {"recommender": recommender, "revision": 0, "cleared": 0})
            connection.execute(update(catalogues).where(catalogues.c.recommender == recommender).values(columns))

    def seeds(self) -> Mapping[str, SeedProgress]:
        query = select(catalogues.c.recommender, catalogues.c.seed_version, catalogues.c.seed_digest, catalogues.c.seed_left)
        with self._reads.connect() as connection:
            rows = connection.execute(query.where(catalogues.c.seed_version.is_not(None))).all()
        return {row.recommender: SeedProgress(row.seed_version, row.seed_digest, row.seed_left) for row in rows}

    def names(self, recommender: str) -> Collection[str]:
        with self._reads.connect() as connection:
            return _names(connection.execute(select(catalogues.c.names).where(catalogues.c.recommender == recommender)).scalar())

    def delete(self, recommender: str, items: Sequence[int], now: datetime) -> int:
        with self._engine.begin() as connection:
            take_turn(connection, "catalogue", recommender)
            refuse_deleted(connection, recommender)
            before = self._present(connection, recommender, items)
            times = {EACH_NAME: _micros(now)}
            gone = {
                item: CatalogueItem(item, {}, False, True, id=entry.id, times=times) for item, entry in before.items() if not entry.deleted
            }
            return self._write(connection, recommender, before, gone, now)

    def get(self, recommender: str, item: int) -> CatalogueItem:
        with self._reads.connect() as connection:
            row = connection.execute(select(catalogue_items).where(_item.recommender == recommender, _item.item == item)).one_or_none()
        if row is None or row.deleted:
            raise no_such("item", str(item))
        damage = _damage(row)
        if damage:
            raise Unreadable(f"item {item} of '{recommender}' is damaged: {damage}; write it again")
        return _read(row)

    def page(self, recommender: str, limit: int, after: int | None = None) -> Sequence[CatalogueItem]:
        query = select(catalogue_items).where(_item.recommender == recommender, _item.deleted.is_(False)).order_by(_item.item).limit(limit)
        if after is not None:
            query = query.where(_item.item > after)
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return [self._entry(row) for row in rows]

    def heads(self) -> Mapping[str, CatalogueHead]:
        query = select(catalogues.c.recommender, catalogues.c.revision, catalogues.c.cleared)
        with self._reads.connect() as connection:
            return {row.recommender: CatalogueHead(row.revision, row.cleared) for row in connection.execute(query)}

    def changes(self, recommender: str, since: int, limit: int) -> Sequence[CatalogueItem]:
        conditions = (_item.recommender == recommender, _item.revision > since)
        query = select(catalogue_items).where(*conditions).order_by(_item.revision).limit(limit)
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return [self._entry(row) for row in rows]

    def _present(self, connection: Connection, recommender: str, items: Iterable[int]) -> dict[int, CatalogueItem]:
        waiting, entries = iter(sorted(items)), {}
        while some := list(itertools.islice(waiting, _AT_ONCE)):
            for row in connection.execute(self._named, {"name": recommender, "items": some}):
                entries[row.item] = replace(self._entry(row), revision=_DAMAGED) if _damage(row) else _read(row)
        return entries

    def _write(
        self,
        connection: Connection,
        recommender: str,
        before: Mapping[int, CatalogueItem],
        after: Mapping[int, CatalogueItem],
        now: datetime,
    ) -> int:
        changed = [entry for item, entry in after.items() if _differs(before.get(item), entry)]
        if not changed:
            return 0
        connection.execute(self._begin, {"recommender": recommender, "revision": 0, "cleared": 0})
        counted = update(catalogues).where(catalogues.c.recommender == recommender).values(revision=catalogues.c.revision + len(changed))
        last, stored_names = connection.execute(counted.returning(catalogues.c.revision, catalogues.c.names)).one()
        names = {name for entry in changed for name in entry.attributes}
        if not names <= (known_names := _names(stored_names)):
            of = update(catalogues).where(catalogues.c.recommender == recommender)
            connection.execute(of.values(names=sorted(names | known_names)))
        first = last - len(changed) + 1
        rows = [
            {"recommender": recommender} | vars(entry) | {"revision": number, "updated_at": entry.updated_at or now}
            for number, entry in enumerate(changed, first)
        ]
        connection.execute(self._put, rows)
        return len(changed)

    def _touch(
        self,
        connection: Connection,
        recommender: str,
        before: Mapping[int, CatalogueItem],
        after: Mapping[int, CatalogueItem],
    ) -> None:
        """Stores the times of writes that change nothing: an older items table must not change the items later."""
        unchanged = [entry for item, entry in after.items() if item in before and not _differs(before[item], entry)]
        newer = [
            {"at_recommender": recommender, "at_item": entry.item, "new_times": dict(entry.times)}
            for entry in unchanged
            if entry.times != before[entry.item].times
        ]
        if newer:
            connection.execute(_TOUCH, newer)

    def _entry(self, row: Row[Any]) -> CatalogueItem:
        """Returns a damaged row without attributes, and logs each revision once."""
        damage = _damage(row)
        if damage and (row.recommender, row.item, row.revision) not in self._damaged:
            self._damaged.add((row.recommender, row.item, row.revision))
            log.error("item: damaged, no attributes until written again recommender=%s item=%d error=%s", row.recommender, row.item, damage)
        return _read(row)


def forget(connection: Connection, recommender: str) -> None:
    """Deletes all items with the recommender. A new recommender of this name continues the revisions."""
    connection.execute(delete(catalogue_items).where(_item.recommender == recommender))
    revision = catalogues.c.revision + 1
    reset = {"names": None, "seed_version": None, "seed_digest": None, "seed_left": None}
    cleared = update(catalogues).where(catalogues.c.recommender == recommender)
    connection.execute(cleared.values(revision=revision, cleared=revision, **reset))


def _check_same_id(stored: CatalogueItem | None, id: str | None) -> None:
    if stored is not None and stored.id != id:
        raise Invalid(f"items '{stored.id}' and '{id}' have the same key: rename one of them; nothing of this request was written")


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _later(item: CatalogueItem, at: datetime) -> datetime:
    return at if item.updated_at is None else max(at, item.updated_at)


def _differs(before: CatalogueItem | None, after: CatalogueItem) -> bool:
    return before is None or before.revision == _DAMAGED or not alike(before, after)


def _names(stored: Any) -> set[str]:
    """Returns no names if the stored list is damaged."""
    return set(stored) if isinstance(stored, list) else set()


def _damage(row: Row[Any]) -> str:
    if isinstance(row.attributes, Damage):
        return row.attributes.said
    return "" if isinstance(row.attributes, dict) else "attributes: not an object"


def _read(row: Row[Any]) -> CatalogueItem:
    stored = row.attributes if isinstance(row.attributes, dict) else {}
    attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    times = row.times if isinstance(row.times, dict) else {EACH_NAME: _micros(row.updated_at)}
    created_at = row.created_at or row.updated_at
    return CatalogueItem(row.item, attributes, row.available, row.deleted, row.revision, row.updated_at, row.id, times, created_at)
