"""Impressions as attribution sees them: found by name or by user, with what they showed."""

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
"""Names in one statement."""

_shown = impressions.c
_items = _shown["items"].label("showed")  # a row's own `items` is a method
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
    """`seq` and `answer` are those of the row that is stored already."""

    recommender: str
    user: int
    item: int
    request_id: str | None
    at: int
    within: int
    """How old an answer may be that it reacts to without naming it."""
    seq: int | None = None
    answer: str | None = None


@dataclass(frozen=True)
class Answer:
    """An impression, and when it was first hit as far as is known by now."""

    request_id: str
    recommender: str
    user: int
    showed: Mapping[int, int]
    """The place of each item."""
    at: int
    hit_at: int | None

    def was_given_to(self, event: Positive) -> bool:
        return (self.recommender, self.user) == (event.recommender, event.user) and event.item in self.showed

    def hit_by(self, at: int) -> int:
        """Clocks differ, but a reaction doesn't precede what it reacts to."""
        return max(at, self.at)

    def hit_within(self, attribution: int) -> bool:
        return self.hit_at is not None and self.hit_at - self.at <= attribution


def targets(connection: Connection, events: Sequence[Positive]) -> list[Answer | None]:
    """The answer that each of them reacts to: the one that it names, if that can be; else the newest in which this user can have
    seen the item."""
    by_request = named(connection, {event.request_id for event in events if event.request_id is not None})
    answers: list[Answer | None] = []
    for event in events:
        answer = by_request.get(event.request_id or "")
        answers.append(answer if answer is not None and answer.was_given_to(event) else _newest(connection, event, by_request))
    return answers


def named(connection: Connection, names: Iterable[str]) -> dict[str, Answer]:
    return {row.request_id: _answer(row) for some in portions(sorted(names)) for row in connection.execute(_NAMED, {"names": some})}


def portions(values: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    waiting = iter(values)
    while some := list(itertools.islice(waiting, size)):
        yield some


def _newest(connection: Connection, event: Positive, by_request: dict[str, Answer]) -> Answer | None:
    bounds = {"recommender": event.recommender, "user_key": event.user, "until": event.at, "since": event.at - event.within}
    with connection.execute(_OF_USER, bounds) as rows:
        for row in rows:
            answer = by_request.get(row.request_id) or by_request.setdefault(row.request_id, _answer(row))
            if event.item in answer.showed:
                return answer
    return None


def _answer(row: Row[Any]) -> Answer:
    return Answer(row.request_id, row.recommender, row.user, _places(row), row.at, row.hit_at)


def _places(row: Row[Any]) -> Mapping[int, int]:
    """Of a damaged row none: it earns nothing, and hinders no other."""
    try:
        items = json.loads(row.showed)
        return {item: place for place, item in reversed(list(enumerate(items)))}
    except (ValueError, TypeError) as error:
        log.error("what answer '%s' showed can't be read, so it earns nothing: %s", row.request_id, error)
        return {}
