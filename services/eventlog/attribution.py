"""Which answer a positive reacts to. Found when the positive arrives, so that reading a hit rate is a count.

An impression keeps the time of its earliest positive and no verdict: whoever reads decides how late still counts. Writers
wait while this goes on, so a batch looks up the named answers in a few statements and writes all hits in one.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, or_, select, update

from services.eventlog.tables import impressions

log = logging.getLogger(__name__)

_NAMES_AT_ONCE = 500

_shown = impressions.c
_items = _shown["items"].label("showed")  # a row's own `items` is a method
_answers: Select[Any] = select(_shown.request_id, _shown.recommender, _shown.user, _items, _shown.at, _shown.hit_at)
_NAMED = _answers.where(_shown.request_id.in_(bindparam("names", expanding=True)))
_LOCKED = _NAMED.order_by(_shown.request_id).with_for_update()  # in one order: no two writers deadlock
_OF_USER = _answers.where(
    _shown.recommender == bindparam("recommender"),
    _shown.user == bindparam("user_key"),
    _shown.at <= bindparam("until"),
    _shown.at >= bindparam("since"),
).order_by(_shown.at.desc(), _shown.request_id.desc())
_HIT = (
    update(impressions)
    .where(_shown.request_id == bindparam("name"), or_(_shown.hit_at.is_(None), _shown.hit_at > bindparam("when")))
    .values(hit_at=bindparam("when"))
)


@dataclass(frozen=True)
class Positive:
    recommender: str
    user: int
    item: int
    request_id: str | None
    at: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Positive:
        return cls(row["recommender"], row["user"], row["item"], row["request_id"], row["at"])


@dataclass(frozen=True)
class _Answer:
    """An impression, and when it was first hit as far as is known by now."""

    request_id: str
    recommender: str
    user: int
    showed: frozenset[int]
    at: int
    hit_at: int | None

    def was_given_to(self, event: Positive) -> bool:
        return (self.recommender, self.user) == (event.recommender, event.user) and event.item in self.showed

    def hit_within(self, attribution: int) -> bool:
        return self.hit_at is not None and self.hit_at - self.at <= attribution


def attribute(connection: Connection, events: Sequence[Positive], attribution: int) -> int:
    """Writes the hits of these positives; returns how many impressions became hits within `attribution` that were none."""
    known = _named(connection, {event.request_id for event in events if event.request_id is not None})
    before: dict[str, _Answer] = {}
    for event in events:
        answer = known.get(event.request_id or "")
        if answer is None or not answer.was_given_to(event):
            answer = _newest(connection, event, attribution, known)
        if answer is not None:
            before.setdefault(answer.request_id, answer)
            known[answer.request_id] = _earlier(answer, event.at)
    if connection.dialect.name == "postgresql":  # where other writers may hit the same answers meanwhile
        for name, answer in _named(connection, before, _LOCKED).items():
            before[name], known[name] = answer, _earlier(answer, known[name].hit_at or answer.at)
    hits = [known[name] for name in before]
    if hits:
        connection.execute(_HIT, [{"name": hit.request_id, "when": hit.hit_at} for hit in hits])
    return sum(hit.hit_within(attribution) and not before[hit.request_id].hit_within(attribution) for hit in hits)


def _earlier(answer: _Answer, at: int) -> _Answer:
    at = max(at, answer.at)  # clocks differ, but a reaction doesn't precede what it reacts to
    return answer if answer.hit_at is not None and answer.hit_at <= at else replace(answer, hit_at=at)


def _named(connection: Connection, names: Iterable[str], query: Select[Any] = _NAMED) -> dict[str, _Answer]:
    found: dict[str, _Answer] = {}
    waiting = iter(sorted(names))
    while some := list(itertools.islice(waiting, _NAMES_AT_ONCE)):
        found |= {row.request_id: _answer(row) for row in connection.execute(query, {"names": some})}
    return found


def _newest(connection: Connection, event: Positive, attribution: int, known: Mapping[str, _Answer]) -> _Answer | None:
    """The newest impression in which this user can have seen the item."""
    bounds = {"recommender": event.recommender, "user_key": event.user, "until": event.at, "since": event.at - attribution}
    with connection.execute(_OF_USER, bounds) as rows:
        for row in rows:
            answer = known.get(row.request_id) or _answer(row)
            if event.item in answer.showed:
                return answer
    return None


def _answer(row: Row[Any]) -> _Answer:
    return _Answer(row.request_id, row.recommender, row.user, _items_of(row), row.at, row.hit_at)


def _items_of(row: Row[Any]) -> frozenset[int]:
    """Of a damaged row none: it earns nothing, and hinders no other."""
    try:
        return frozenset(json.loads(row.showed))
    except (ValueError, TypeError) as error:
        log.error("what answer '%s' showed can't be read, so it earns nothing: %s", row.request_id, error)
        return frozenset()
