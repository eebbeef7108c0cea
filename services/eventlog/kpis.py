"""What the answers earned, counted in SQL: nothing but sums leaves the database, however many impressions there are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, FromClause, Select, func, select

from services.eventlog.earned import earned_by
from services.eventlog.sums import hits, over_users, sample
from services.eventlog.tables import impressions, instant, length
from services.eventlog.traffic import traffic_of
from shared.domain.earned import Earned
from shared.domain.traffic import Traffic
from shared.domain.verdict import Sample
from shared.ports import HitRate

_shown = impressions.c


class SqlKpis:
    """Implements KpiSource."""

    def __init__(self, engine: Engine) -> None:
        self._reads = engine.execution_options(read_only=True)

    def samples(self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime) -> Mapping[str, Sample]:
        """From the index alone, in its order: one user after the other, so that nothing is sorted or kept."""
        query = _samples(recommender, generation, length(window), length(attribution), instant(now))
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return {row.variant: sample(row) for row in rows}

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        with self._reads.connect() as connection:
            return traffic_of(connection, recommender, generation, instant(now))

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        given = _given(recommender, version, since).where(_shown.at < instant(until))
        return self._count(given.subquery(), attribution)

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Earned:
        with self._reads.connect() as connection:
            return earned_by(connection, recommender, version, instant(since), instant(until), length(attribution), conversions)

    def _count(self, answers: FromClause, attribution: timedelta) -> HitRate:
        query = select(func.count().label("answers"), hits(answers.c, length(attribution)).label("hits")).select_from(answers)
        with self._reads.connect() as connection:
            row = connection.execute(query).one()
        return HitRate(row.answers, row.hits)


def _given(recommender: str, version: int, since: datetime) -> Select[Any]:
    here = (_shown.recommender == recommender, _shown.version == version, _shown.at >= instant(since))
    return select(_shown.at, _shown.hit_at).where(*here)


def _samples(recommender: str, generation: int, window: int, attribution: int, now: int) -> Select[Any]:
    here = (_shown.recommender == recommender, _shown.generation == generation, _shown.fallback.is_(None))
    first = func.min(_shown.at).over(partition_by=(_shown.variant, _shown.user))
    given = select(_shown.variant, _shown.user, _shown.at, _shown.hit_at, first.label("first")).where(*here).subquery()
    users = (
        select(given.c.variant, func.count().label("answers"), hits(given.c, attribution).label("hits"))
        .where(given.c.first <= now - window - attribution, given.c.at <= given.c.first + window)
        .group_by(given.c.variant, given.c.user)
        .subquery()
    )
    return over_users(users, "variant")
