"""Deduplication of events: of the events with one id only the first counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select

from services.eventlog.impression_lookup import portions
from services.eventlog.tables import interactions

_COMPARED = ("user", "item", "value", "request_id", "kind", "revenue")
"""Fields that are compared between events of one id. Not the time: an event without a time has its time of arrival."""

_done = interactions.c
_STORED_EVENTS = select(_done.recommender, _done.event, *(_done[name] for name in _COMPARED)).where(
    _done.recommender == bindparam("recommender"), _done.event.in_(bindparam("events", expanding=True))
)


def unknown(connection: Connection, rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Returns the new events, each id once, and how many other events differ from the first event of their id."""
    first: dict[tuple[str, str], Any] = _stored(connection, rows)
    new, conflicts = [], 0
    for row in rows:
        key = (row["recommender"], row["event"])
        if row["event"] is None:
            new.append(row)
        elif key not in first:
            first[key] = row
            new.append(row)
        else:
            conflicts += any(row[name] != first[key][name] for name in _COMPARED)
    return new, conflicts


def _stored(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    ids: dict[str, set[str]] = {}
    for row in rows:
        if row["event"] is not None:
            ids.setdefault(row["recommender"], set()).add(row["event"])
    stored: dict[tuple[str, str], Any] = {}
    for recommender, events in ids.items():
        for some in portions(sorted(events)):
            for stored_row in connection.execute(_STORED_EVENTS, {"recommender": recommender, "events": some}).mappings():
                stored[stored_row["recommender"], stored_row["event"]] = stored_row
    return stored
