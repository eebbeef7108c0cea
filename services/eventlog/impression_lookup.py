"""Impressions for attribution: looked up by request id or by user, with their items."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, bindparam, select

from services.eventlog.tables import impressions

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = 500
"""Maximum number of names in one statement."""

_shown = impressions.c
_items = _shown["items"].label("showed")  # `items` is a method of rows
_answers: Select[Any] = select(_shown.request_id, _shown.recommender, _shown.user, _items, _shown.at, _shown.hit_at)
_NAMED = _answers.where(_shown.request_id.in_(bindparam("names", expanding=True)))
_OF_USER = _answers.where(
    _shown.recommender == bindparam("recommender"),
    _shown.user == bindparam("user_key"),
    _shown.at <= bindparam("until"),
    _shown.at >= bindparam("since"),
).order_by(_shown.at.desc(), _shown.request_id.desc())


@dataclass(frozen=True)
class Positive:
    """A positive event; `seq` and `answer` are set if the event is already stored."""

    recommender: str
    user: int
    item: int
    request_id: str | None
    at: int
    within: int
    """Maximum age of an answer that the event doesn't name."""
    seq: int | None = None
    answer: str | None = None


@dataclass(frozen=True)
class StoredImpression:
    """An impression, and the time of its earliest known positive."""

    request_id: str
    recommender: str
    user: int
    showed: Mapping[int, int]
    """Place of each item."""
    at: int
    hit_at: int | None

    def was_given_to(self, event: Positive) -> bool:
        return (self.recommender, self.user) == (event.recommender, event.user) and event.item in self.showed

    def hit_by(self, at: int) -> int:
        """Returns the time of a positive, not before the answer: clocks differ."""
        return max(at, self.at)

    def hit_within(self, attribution: int) -> bool:
        return self.hit_at is not None and self.hit_at - self.at <= attribution


def targets(connection: Connection, events: Sequence[Positive]) -> list[StoredImpression | None]:
    """Returns the answer of each event: the answer that it names, if user and item match; else the newest answer within the
    window that showed the item to this user."""
    by_request = named(connection, {event.request_id for event in events if event.request_id is not None})
    answers: list[StoredImpression | None] = []
    for event in events:
        answer = by_request.get(event.request_id or "")
        answers.append(answer if answer is not None and answer.was_given_to(event) else _newest(connection, event, by_request))
    return answers


def named(connection: Connection, names: Iterable[str]) -> dict[str, StoredImpression]:
    return {row.request_id: _answer(row) for some in portions(sorted(names)) for row in connection.execute(_NAMED, {"names": some})}


def portions(values: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    waiting = iter(values)
    while some := list(itertools.islice(waiting, size)):
        yield some


def _newest(connection: Connection, event: Positive, by_request: dict[str, StoredImpression]) -> StoredImpression | None:
    bounds = {"recommender": event.recommender, "user_key": event.user, "until": event.at, "since": event.at - event.within}
    with connection.execute(_OF_USER, bounds) as rows:
        for row in rows:
            answer = by_request.get(row.request_id) or by_request.setdefault(row.request_id, _answer(row))
            if event.item in answer.showed:
                return answer
    return None


def _answer(row: Row[Any]) -> StoredImpression:
    return StoredImpression(row.request_id, row.recommender, row.user, _places(row), row.at, row.hit_at)


def _places(row: Row[Any]) -> Mapping[int, int]:
    """Returns the place of each item; none for a damaged row, which earns nothing and stops no other row."""
    try:
        items = json.loads(row.showed)
        return {item: place for place, item in reversed(list(enumerate(items)))}
    except (ValueError, TypeError) as error:
        log.error("impression: unreadable items, earns no hits request=%s error=%s", row.request_id, error)
        return {}
