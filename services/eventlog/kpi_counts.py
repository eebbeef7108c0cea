"""KPIs of a version's answers from four queries: each sums integers along an index, grouped by any keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select

from services.eventlog.tables import impressions, interactions
from shared.contracts.events import REFUSED
from shared.domain.earned import MILLIONTHS, AnswerOutcomes

_shown, _done = impressions.c, interactions.c
Key = tuple[Any, ...]


@dataclass
class _Counts:
    answers: int = 0
    hits: int = 0
    conversions: int = 0
    revenue: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    shown: dict[int, int] = field(default_factory=dict)
    clicked: dict[int, int] = field(default_factory=dict)


def answers_of(recommender: str, version: int, since: int, until: int) -> tuple[ColumnElement[bool], ...]:
    """Returns the conditions of a version's answers in [since, until); a refused request has no answer."""
    answered = or_(_shown.fallback.is_(None), _shown.fallback.not_in(REFUSED))
    return (_shown.recommender == recommender, _shown.version == version, _shown.at >= since, _shown.at < until, answered)


def earned_by(
    connection: Connection,
    recommender: str,
    version: int,
    since: int,
    until: int,
    attribution: int,
    conversions: Collection[str],
    keys: Sequence[ColumnElement[Any]] = (),
) -> Mapping[Key, AnswerOutcomes]:
    """Returns the KPIs by the values of `keys`, which are columns of answers; groups without answers are left out."""
    conditions = answers_of(recommender, version, since, until)
    named = [key.label(f"key_{at}") for at, key in enumerate(keys)]
    labels = [f"key_{at}" for at in range(len(named))]

    def reactions(*columns: Any) -> Select[Any]:
        joined = impressions.join(interactions, _done.answer == _shown.request_id)
        reaction_conditions = (*conditions, _shown.hit_at.is_not(None), _done.at - _shown.at <= attribution)
        return select(*named, *columns).select_from(joined).where(*reaction_conditions)

    tallies: dict[Key, _Counts] = defaultdict(_Counts)

    def rows(query: Select[Any], *groups: Any) -> list[tuple[_Counts, Sequence[Any]]]:
        by = [*labels, *groups]
        grouped = query.group_by(*by) if by else query
        return [(tallies[tuple(row[: len(named)])], row[len(named) :]) for row in connection.execute(grouped)]

    hits = func.count(_shown.hit_at).filter(_shown.hit_at - _shown.at <= attribution)
    for tally, (size, answers, hit) in rows(select(*named, _shown.size, func.count(), hits).where(*conditions), _shown.size):
        tally.answers += answers
        tally.hits += hit
        tally.shown[size] = answers
    revenue = (func.sum(_done.revenue // MILLIONTHS), func.sum(_done.revenue % MILLIONTHS))  # two sums, because one sum of large values
    for tally, (kind, count, units, rest) in rows(reactions(_done.kind, func.count(), *revenue), _done.kind):  # could exceed 64 bits
        tally.revenue += int(units or 0) * MILLIONTHS + int(rest or 0)
        if kind is not None:
            tally.kinds[kind] = count
    answered = func.count(_done.answer.distinct())
    for tally, (place, count) in rows(reactions(_done.position, answered), _done.position):
        if place is not None:
            tally.clicked[place] = count
    if conversions:
        for tally, (count,) in rows(reactions(answered).where(_done.kind.in_(sorted(conversions)))):
            tally.conversions = int(count)
    return {
        key: AnswerOutcomes(tally.answers, tally.hits, tally.conversions, tally.revenue, tally.kinds, tally.shown, tally.clicked)
        for key, tally in tallies.items()
        if tally.answers
    }
