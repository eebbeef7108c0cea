"""EventDays in SQL: number of events per day, and the events of a day as lines of JSON.

Counts read only an index. A dump is complete or absent, and reads a limited number of rows at a time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Row, Select, and_, func, literal, select, tuple_

from services.eventlog.files import complete
from services.eventlog.tables import impressions, instant, interactions, moment
from shared.contracts.archive import EventTable
from shared.contracts.events import PAGE, Interaction
from shared.domain.archive import DAY, start_of
from shared.domain.earned import MILLIONTHS
from shared.domain.pages import PAGES
from shared.ports import StoredEvent

log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 10_000
_EPOCH, _LENGTH = date(1970, 1, 1), 86_400_000_000
_TABLES = {"interactions": interactions, "impressions": impressions}
_done, _shown = interactions.c, impressions.c
_items = _shown["items"].label("showed")  # `items` is a method of rows


class SqlEventDays:
    """Implements EventDays."""

    def __init__(self, engine: Engine) -> None:
        self._reads = engine.execution_options(read_only=True)

    def counts(self, recommender: str, table: EventTable, until: datetime) -> Mapping[date, int]:
        at, named = _TABLES[table].c.at, _TABLES[table].c.recommender
        number = (at // _LENGTH).label("day")
        query = select(number, func.count()).where(named == recommender, at >= 0, at < instant(until)).group_by(number)
        with self._reads.connect() as connection:
            return {_EPOCH + timedelta(days=day): rows for day, rows in connection.execute(query)}

    def page(self, recommender: str, limit: int, after: tuple[int, int] | None = None) -> Sequence[StoredEvent]:
        is_view = and_(_done.kind == PAGE, _done.item.between(PAGES.start, PAGES.stop - 1))
        query = select(interactions).where(_done.recommender == recommender, func.coalesce(~is_view, True))
        if after is not None:
            query = query.where(tuple_(_done.at, _done.seq) > tuple_(*map(literal, after)))
        with self._reads.connect() as connection:
            rows = connection.execute(query.order_by(_done.at, _done.seq).limit(limit)).all()
        return [StoredEvent(_event(row), (row.at, row.seq)) for row in rows]

    def dump(self, recommender: str, table: EventTable, day: date, to: Path) -> int:
        count = 0
        with complete(to) as part, self._reads.connect() as connection, part.open("w", encoding="utf-8") as stream:
            rows = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(_of(recommender, table, day))
            for batch in rows.partitions():
                stream.writelines(_lines(table, batch))
                count += len(batch)
        return count


def _event(row: Row[Any]) -> Interaction:
    return Interaction(
        id=row.event,
        recommender=row.recommender,
        user=row.user,
        item=row.item,
        kind=row.kind,
        value=row.value,
        revenue=None if row.revenue is None else row.revenue / MILLIONTHS,
        request_id=row.request_id,
        at=moment(row.at),
        user_id=row.user_id,
        item_id=row.item_id,
    )


def _of(recommender: str, table: EventTable, day: date) -> Select[Any]:
    columns: tuple[Any, ...] = (
        (
            *(_done.seq, _done.event, _done.user, _done.item, _done.kind, _done.value, _done.revenue, _done.positive, _done.request_id),
            *(_done.at, _done.user_id, _done.item_id),
        )
        if table == "interactions"
        else (
            *(_shown.request_id, _shown.user, _shown.version, _shown.variant, _shown.generation, _shown.step, _items, _shown.fallback),
            *(_shown.propensities, _shown.slices, _shown.bucket, _shown.score, _shown.at),
        )
    )
    at, start = _TABLES[table].c.at, start_of(day)
    return select(*columns).where(_TABLES[table].c.recommender == recommender, at >= instant(start), at < instant(start + DAY))


def _lines(table: EventTable, rows: Any) -> Iterator[str]:
    document_of = _interaction if table == "interactions" else _impression
    return (json.dumps(document_of(row), separators=(",", ":")) + "\n" for row in rows)


def _interaction(row: Row[Any]) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "id": row.event,
        "user": row.user,
        "item": row.item,
        "kind": row.kind,
        "value": row.value,
        "revenue": None if row.revenue is None else row.revenue / MILLIONTHS,
        "positive": bool(row.positive),
        "request_id": row.request_id,
        "at": row.at,
        "user_id": row.user_id,
        "item_id": row.item_id,
    }


def _impression(row: Row[Any]) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "user": row.user,
        "version": row.version,
        "variant": row.variant,
        "generation": row.generation,
        "step": row.step,
        "items": _list(row.showed, row.request_id),
        "propensities": None if row.propensities is None else _list(row.propensities, row.request_id),
        "fallback": row.fallback,
        "slices": row.slices.split() if row.slices else [],
        "bucket": row.bucket,
        "score": row.score,
        "at": row.at,
    }


def _list(text: str, request_id: str) -> list[Any] | None:
    try:
        values: list[Any] = json.loads(text)
    except ValueError:
        log.error("impression: unreadable items, left out request=%s", request_id)
        return None
    return values
