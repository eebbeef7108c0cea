"""Traffic of one route generation: three queries, of which the first two read only indexes.

The sums follow the order of their index, so nothing is sorted or buffered, for any number of answers. Coverage needs the items
shown, so it reads a fixed number of the newest answers.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Row, Select, case, cast, func, select

from services.eventlog.tables import answered_by_version, impressions
from shared.contracts.events import ANSWERED_BY_VERSION, NOT_PERSONAL, NOTHING_LEFT, SERVER_AWAY, VERSION_ERRORS
from shared.domain.traffic import Traffic, UserShares

log = logging.getLogger(__name__)

_LOOKED = 2_000
"""Number of answers of a version whose items are read."""

_shown = impressions.c


def traffic_of(connection: Connection, recommender: str, generation: int, now: int) -> Mapping[str, Traffic]:
    conditions = (_shown.recommender == recommender, _shown.generation == generation, _shown.at <= now)
    how = (_shown.variant, _shown.fallback, _shown.bucket)
    sums = select(
        *how,
        func.count().label("answers"),
        func.count(_shown.score).label("scored"),
        func.sum(_shown.score).label("total"),
        func.sum(_shown.score * _shown.score).label("squares"),
    )
    people = {row.variant: row for row in connection.execute(_by_variant(conditions))}
    rows = connection.execute(sums.where(*conditions).group_by(*how)).all()
    lists = {variant: _lists(connection, recommender, generation, variant, now) for variant in people}
    looked = min((len(shown) for shown in lists.values() if shown), default=0)
    return {
        variant: _traffic(users, [row for row in rows if row.variant == variant], lists[variant][:looked])
        for variant, users in people.items()
    }


def _by_variant(conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """Counts users, and sums over users the shares of fallback answers and of empty answers."""

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0))

    users = (
        select(
            _shown.variant,
            count(_shown.fallback.is_distinct_from(SERVER_AWAY)).label("answers"),
            count(_shown.fallback.in_(NOT_PERSONAL)).label("fallback"),
            count(_shown.fallback == NOTHING_LEFT).label("empty"),
        )
        .where(*conditions)
        .group_by(_shown.variant, _shown.user)
        .subquery()
    )
    shares = [cast(users.c[name], Float) / func.nullif(users.c.answers, 0) for name in ("fallback", "empty")]
    names = ("fallback", "fallback_squares", "empty", "empty_squares")
    values = [value for share in shares for value in (share, share * share)]
    sums = [func.coalesce(func.sum(value), 0.0).label(name) for name, value in zip(names, values, strict=True)]
    counts = (func.count().label("users"), count(users.c.answers > 0).label("counted"))
    return select(users.c.variant, *counts, *sums).group_by(users.c.variant)


def _traffic(users: Row[Any], rows: Iterable[Row[Any]], lists: Sequence[Sequence[int]]) -> Traffic:
    own = [row for row in rows if row.fallback in ANSWERED_BY_VERSION]
    scored = [row for row in own if row.scored]
    return Traffic(
        users=int(users.users),
        answers=sum(row.answers for row in rows if row.fallback != SERVER_AWAY),
        errors=sum(row.answers for row in rows if row.fallback in VERSION_ERRORS),
        fallback=UserShares(int(users.counted), users.fallback, users.fallback_squares),
        empty=UserShares(int(users.counted), users.empty, users.empty_squares),
        latency={row.bucket: row.answers for row in own if row.bucket is not None},
        scored=sum(row.scored for row in scored),
        score_total=sum(row.total for row in scored),
        score_squares=sum(row.squares for row in scored),
        looked=len(lists),
        shown=len(set(itertools.chain.from_iterable(lists))),
    )


def _lists(connection: Connection, recommender: str, generation: int, variant: str, now: int) -> Sequence[Sequence[int]]:
    """Returns the items of the variant's newest answers: reads the newest answers of its version, and leaves out those of other
    generations and those that are not the version's own."""
    conditions = (_shown.recommender == recommender, _shown.generation == generation, _shown.variant == variant)
    version = connection.execute(select(_shown.version).where(*conditions).limit(1)).scalar()
    newest = select(_shown["items"].label("showed"), _shown.generation, _shown.variant, _shown.fallback, _shown.at)
    newest = newest.where(_shown.recommender == recommender, _shown.version == version, _shown.at <= now)
    some = newest.order_by(_shown.at.desc()).limit(_LOOKED).subquery()
    own = (some.c.generation == generation, some.c.variant == variant, answered_by_version(some.c.fallback))
    query = select(some.c.showed).where(*own).order_by(some.c.at.desc())
    return [read for text in connection.execute(query).scalars() if (read := read_items(text)) is not None]


def read_items(text: str) -> Sequence[int] | None:
    """Returns the items of an answer; None for a damaged row."""
    try:
        return list(json.loads(text))
    except (ValueError, TypeError) as error:
        log.error("impression: unreadable items, not counted error=%s", error)
        return None
