"""EventDeletion in SQL: marks of refused and deleted days, and the deletion of their rows."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Select, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.eventlog.tables import event_deletions as marks
from services.eventlog.tables import impressions, instant, interactions, length, moment
from shared.contracts.archive import EventTable
from shared.contracts.keeping import LEAST_KEPT
from shared.domain.archive import REFUSAL_LEAD, start_of
from shared.ports import DeletionMarks
from shared.telemetry import metrics

log = logging.getLogger(__name__)

E = TypeVar("E")
_NEVER_REFUSED = LEAST_KEPT - timedelta(days=10)
"""Younger events are not refused, so that their writers read no marks. Ten days less than possible, because clocks of machines differ."""


class SqlEventDeletion:
    """Implements EventDeletion."""

    def __init__(self, engine: Engine, refuse_older_code: Callable[[], None] = lambda: None) -> None:
        """`refuse_older_code` is called when days are refused, and again before they are marked as deleted: code that does not know the
        marks would lack these days."""
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._refuse_older_code = refuse_older_code

    def oldest(self, recommender: str, table: EventTable) -> date | None:
        with self._reads.connect() as connection:
            if table == "interactions":
                of_recommender = select(func.min(interactions.c.at)).where(interactions.c.recommender == recommender)
                at = connection.execute(of_recommender.where(interactions.c.at >= 0)).scalar()
            else:
                of_versions = (_oldest_of(connection, recommender, version) for version in _versions(connection, recommender))
                at = min((oldest for oldest in of_versions if oldest is not None), default=None)
        return None if at is None else moment(at).date()

    def marks(self, recommender: str, table: EventTable) -> DeletionMarks:
        with self._reads.connect() as connection:
            row = connection.execute(select(marks).where(*_of(recommender, table))).one_or_none()
        if row is None:
            return DeletionMarks()
        deleted_before = None if row.deleted_before is None else moment(row.deleted_before).date()
        return DeletionMarks(moment(row.refused_before).date(), moment(row.refused_at), deleted_before, row.compactions)

    def refuse(self, recommender: str, table: EventTable, before: date, now: datetime) -> None:
        insert = (postgresql if self._engine.dialect.name == "postgresql" else sqlite).insert
        refusal = {"refused_before": instant(start_of(before)), "refused_at": instant(now)}
        new = insert(marks).values(recommender=recommender, events=table, **refusal)
        is_later = or_(marks.c.deleted_before.is_(None), marks.c.deleted_before <= new.excluded.refused_before)
        with self._engine.begin() as connection:
            connection.execute(new.on_conflict_do_update(index_elements=["recommender", "events"], set_=refusal, where=is_later))
        self._refuse_older_code()

    def mark_deleted(self, recommender: str, table: EventTable, before: date, compactions: int, now: datetime) -> None:
        self._refuse_older_code()  # it may have failed before
        deleted_before = instant(start_of(before))
        conditions = (
            *_of(recommender, table),
            marks.c.refused_before >= deleted_before,
            marks.c.refused_at <= instant(now - REFUSAL_LEAD),
            or_(marks.c.deleted_before.is_(None), marks.c.deleted_before < deleted_before),
        )
        with self._engine.begin() as connection:
            connection.execute(update(marks).where(*conditions).values(deleted_before=deleted_before, compactions=compactions))

    def delete(self, recommender: str, table: EventTable, before: date, limit: int) -> int:
        with self._engine.begin() as connection:
            deleted_before = connection.execute(select(marks.c.deleted_before).where(*_of(recommender, table))).scalar()
            if deleted_before is None:
                return 0
            key: Any = interactions.c.seq if table == "interactions" else impressions.c.request_id
            keys = _old_keys(connection, recommender, table, min(deleted_before, instant(start_of(before))), limit)
            return connection.execute(delete(key.table).where(key.in_(keys))).rowcount if keys else 0


def without_refused(connection: Connection, table: EventTable, events: Sequence[E], place: Callable[[E], tuple[str, int]]) -> list[E]:
    """Returns the events whose day is not refused; counts and logs the others. `place` returns an event's recommender and instant."""
    places = [place(event) for event in events]
    newest_refusal = time.time_ns() // 1000 - length(_NEVER_REFUSED)
    suspects = sorted({recommender for recommender, at in places if at < newest_refusal})
    if not suspects:
        return list(events)
    rows = select(marks.c.recommender, marks.c.refused_before).where(marks.c.events == table, marks.c.recommender.in_(suspects))
    refused_before = {row.recommender: row.refused_before for row in connection.execute(rows)}
    refused = Counter(recommender for recommender, at in places if at < refused_before.get(recommender, at))
    for recommender, count in refused.items():
        metrics.TOO_OLD.labels(recommender).inc(count)
        log.warning("event log: events of refused days are left out recommender=%s table=%s events=%d", recommender, table, count)
    return [event for event, (recommender, at) in zip(events, places, strict=True) if at >= refused_before.get(recommender, at)]


def _of(recommender: str, table: EventTable) -> tuple[ColumnElement[bool], ...]:
    return (marks.c.recommender == recommender, marks.c.events == table)


def _old_keys(connection: Connection, recommender: str, table: EventTable, before: int, limit: int) -> list[Any]:
    """Returns keys of up to `limit` old rows, which an index finds: the oldest ones, of impressions the oldest of one version."""
    if table == "interactions":
        of_recommender = select(interactions.c.seq).where(interactions.c.recommender == recommender)
        return _keys(connection, of_recommender, interactions.c.at, before, limit)
    for version in _versions(connection, recommender):
        of_version = select(impressions.c.request_id).where(*_of_version(recommender, version))
        keys = _keys(connection, of_version, impressions.c.at, before, limit)
        if keys:
            return keys
    return []


def _keys(connection: Connection, query: Select[Any], at: ColumnElement[int], before: int, limit: int) -> list[Any]:
    """Skips rows that a forgetting deletes now: both would wait for each other on PostgreSQL."""
    oldest = query.where(at >= 0, at < before).order_by(at).limit(limit).with_for_update(skip_locked=True)
    return list(connection.execute(oldest).scalars())


def _versions(connection: Connection, recommender: str) -> Iterator[int]:
    """Yields the versions that have impressions. Finding each takes one lookup in an index."""
    of_recommender = select(func.min(impressions.c.version)).where(impressions.c.recommender == recommender)
    version = connection.execute(of_recommender).scalar()
    while version is not None:
        yield version
        version = connection.execute(of_recommender.where(impressions.c.version > version)).scalar()


def _oldest_of(connection: Connection, recommender: str, version: int) -> int | None:
    of_version = select(func.min(impressions.c.at)).where(*_of_version(recommender, version), impressions.c.at >= 0)
    return connection.execute(of_version).scalar()


def _of_version(recommender: str, version: int) -> tuple[ColumnElement[bool], ...]:
    return (impressions.c.recommender == recommender, impressions.c.version == version)
