"""What the answers under one generation of a route looked like: three questions, the first two answered from indexes alone.

The sums run along the order of their index, so that nothing is sorted or kept, however many answers there are. Coverage needs
what was shown, so it looks at a fixed number of the newest answers.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from services.eventlog.tables import impressions
from shared.contracts.events import NO_SCORES
from shared.domain.traffic import Traffic

log = logging.getLogger(__name__)

_LOOKED = 2_000
"""Answers of a version that are read for what they showed."""

_shown = impressions.c


def traffic_of(connection: Connection, recommender: str, generation: int, now: int) -> Mapping[str, Traffic]:
    here = (_shown.recommender == recommender, _shown.generation == generation, _shown.at <= now)
    users = select(_shown.variant, func.count(_shown.user.distinct()).label("users")).where(*here).group_by(_shown.variant)
    how = (_shown.variant, _shown.fallback, _shown.bucket)
    sums = select(
        *how,
        func.count().label("answers"),
        func.count(_shown.score).label("scored"),
        func.sum(_shown.score).label("total"),
        func.sum(_shown.score * _shown.score).label("squares"),
    )
    people = {row.variant: int(row.users) for row in connection.execute(users)}
    rows = connection.execute(sums.where(*here).group_by(*how)).all()
    lists = {variant: _lists(connection, recommender, generation, variant, now) for variant in people}
    looked = min((len(found) for found in lists.values() if found), default=0)
    return {
        variant: _traffic(count, [row for row in rows if row.variant == variant], lists[variant][:looked])
        for variant, count in people.items()
    }


def _traffic(users: int, rows: Iterable[Row[Any]], lists: Sequence[Sequence[int]]) -> Traffic:
    asked = [row for row in rows if row.fallback in (None, NO_SCORES)]
    own = [row for row in asked if row.fallback is None]
    scored = [row for row in own if row.scored]
    return Traffic(
        users=users,
        answers=sum(row.answers for row in asked),
        errors=sum(row.answers for row in asked) - sum(row.answers for row in own),
        latency={row.bucket: row.answers for row in own if row.bucket is not None},
        scored=sum(row.scored for row in scored),
        score_total=sum(row.total for row in scored),
        score_squares=sum(row.squares for row in scored),
        looked=len(lists),
        shown=len(set(itertools.chain.from_iterable(lists))),
    )


def _lists(connection: Connection, recommender: str, generation: int, variant: str, now: int) -> Sequence[Sequence[int]]:
    """What the newest answers showed, among so many of the variant's version as are read: those of other generations, and those
    that aren't its own, are read and left out."""
    here = (_shown.recommender == recommender, _shown.generation == generation, _shown.variant == variant)
    version = connection.execute(select(_shown.version).where(*here).limit(1)).scalar()
    newest = select(_shown["items"].label("showed"), _shown.generation, _shown.variant, _shown.fallback, _shown.at)
    newest = newest.where(_shown.recommender == recommender, _shown.version == version, _shown.at <= now)
    some = newest.order_by(_shown.at.desc()).limit(_LOOKED).subquery()
    own = (some.c.generation == generation, some.c.variant == variant, some.c.fallback.is_(None))
    query = select(some.c.showed).where(*own).order_by(some.c.at.desc())
    return [read for text in connection.execute(query).scalars() if (read := read_items(text)) is not None]


def read_items(text: str) -> Sequence[int] | None:
    """A damaged row is looked at by nobody."""
    try:
        return list(json.loads(text))
    except (ValueError, TypeError) as error:
        log.error("what an answer showed can't be read, so it isn't looked at: %s", error)
        return None
