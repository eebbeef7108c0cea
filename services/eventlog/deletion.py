"""EventDeletion in SQL: marks of deleted days, and the deletion of their rows."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Select, delete, func, insert, select, update

from services.eventlog.tables import event_deletions, impressions, instant, interactions, length, moment
from shared.contracts.archive import EventTable
from shared.contracts.keeping import LEAST_KEPT
from shared.domain.archive import start_of
from shared.ports import DeletionMarks
from shared.telemetry import metrics

log = logging.getLogger(__name__)

E = TypeVar("E")

_mark, _shown, _done = event_deletions.c, impressions.c, interactions.c


class SqlEventDeletion:
    """Implements EventDeletion."""

    def __init__(self, engine: Engine, refuse_older_code: Callable[[], None] = lambda: None) -> None:
        """`refuse_older_code` is called after each refusal: code that does not know the marks would lack the deleted days."""
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._refuse_older_code = refuse_older_code

    def oldest(self, recommender: str, table: EventTable) -> date | None:
        with self._reads.connect() as connection:
            if table == "interactions":
                at = connection.execute(select(func.min(_done.at)).where(_done.recommender == recommender, _done.at >= 0)).scalar()
            else:
                of_versions = (_first_of(connection, recommender, version) for version in _versions(connection, recommender))
                at = min((first for first in of_versions if first is not None), default=None)
        return None if at is None else moment(at).date()

    def marks(self, recommender: str, table: EventTable) -> DeletionMarks:
        with self._reads.connect() as connection:
            row = connection.execute(select(event_deletions).where(*_of(recommender, table))).one_or_none()
        if row is None:
            return DeletionMarks()
        deleted_before = None if row.deleted_before is None else moment(row.deleted_before).date()
        return DeletionMarks(moment(row.refused_before).date(), moment(row.refused_at), deleted_before)

    def refuse(self, recommender: str, table: EventTable, before: date, now: datetime) -> None:
        values = {"refused_before": instant(start_of(before)), "refused_at": instant(now)}
        with self._engine.begin() as connection:
            if not connection.execute(update(event_deletions).where(*_of(recommender, table)).values(values)).rowcount:
                connection.execute(insert(event_deletions).values(recommender=recommender, events=table, **values))
        self._refuse_older_code()

    def release(self, recommender: str, table: EventTable, before: date) -> None:
        with self._engine.begin() as connection:
            marks = update(event_deletions).where(*_of(recommender, table))
            connection.execute(marks.values(deleted_before=instant(start_of(before))))

    def delete(self, recommender: str, table: EventTable, limit: int) -> int:
        with self._engine.begin() as connection:
            before = connection.execute(select(_mark.deleted_before).where(*_of(recommender, table))).scalar()
            if before is None:
                return 0
            key: Any = _done.seq if table == "interactions" else _shown.request_id
            chosen = _deletable(connection, recommender, table, before, limit)
            return connection.execute(delete(key.table).where(key.in_(chosen))).rowcount if chosen else 0


def accepted(connection: Connection, table: EventTable, events: Sequence[E], place: Callable[[E], tuple[str, int]]) -> list[E]:
    """Returns the events whose day is not refused; counts and logs the others. `place` returns an event's recommender and instant. Reads
    the marks only if an event is so old that its day can be refused."""
    places = [place(event) for event in events]
    newest_refusal = time.time_ns() // 1000 - length(LEAST_KEPT)
    suspects = sorted({recommender for recommender, at in places if at < newest_refusal})
    if not suspects:
        return list(events)
    rows = select(_mark.recommender, _mark.refused_before).where(_mark.events == table, _mark.recommender.in_(suspects))
    marks = {row.recommender: row.refused_before for row in connection.execute(rows)}
    refused = Counter(recommender for recommender, at in places if at < marks.get(recommender, at))
    for recommender, count in refused.items():
        metrics.TOO_OLD.labels(recommender).inc(count)
        log.warning("event log: events of a deleted day are left out recommender=%s table=%s events=%d", recommender, table, count)
    return [event for event, (recommender, at) in zip(events, places, strict=True) if at >= marks.get(recommender, at)]


def _of(recommender: str, table: EventTable) -> tuple[ColumnElement[bool], ...]:
    return (_mark.recommender == recommender, _mark.events == table)


def _deletable(connection: Connection, recommender: str, table: EventTable, before: int, limit: int) -> list[Any]:
    """Returns keys of up to `limit` old rows, which an index finds: the oldest ones, of impressions the oldest of one version."""
    if table == "interactions":
        return _keys(connection, select(_done.seq).where(_done.recommender == recommender), _done.at, before, limit)
    for version in _versions(connection, recommender):
        of_version = select(_shown.request_id).where(_shown.recommender == recommender, _shown.version == version)
        keys = _keys(connection, of_version, _shown.at, before, limit)
        if keys:
            return keys
    return []


def _keys(connection: Connection, query: Select[Any], at: ColumnElement[int], before: int, limit: int) -> list[Any]:
    return list(connection.execute(query.where(at >= 0, at < before).order_by(at).limit(limit)).scalars())


def _versions(connection: Connection, recommender: str) -> Iterator[int]:
    """Yields the versions with impressions, by one lookup in an index for each."""
    version = connection.execute(select(func.min(_shown.version)).where(_shown.recommender == recommender)).scalar()
    while version is not None:
        yield version
        later = select(func.min(_shown.version)).where(_shown.recommender == recommender, _shown.version > version)
        version = connection.execute(later).scalar()


def _first_of(connection: Connection, recommender: str, version: int) -> int | None:
    conditions = (_shown.recommender == recommender, _shown.version == version, _shown.at >= 0)
    return connection.execute(select(func.min(_shown.at)).where(*conditions)).scalar()
