"""KpiSource in SQL: the database computes the sums, for any number of impressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, FromClause, Select, func, or_, select

from services.eventlog.kpi_counts import Key, answers_of, earned_by
from services.eventlog.tables import impressions, instant, interactions, length
from services.eventlog.traffic import read_items, traffic_of
from services.eventlog.user_aggregates import hits, over_users, sample
from shared.contracts.events import FRONT_END, NOTHING_LEFT, SERVER_AWAY
from shared.domain.coverage_novelty import ItemShowings
from shared.domain.earned import AnswerGroup, AnswerOutcomes
from shared.domain.sequential_test import VariantSample
from shared.domain.traffic import Traffic
from shared.ports import EmptyAnswers, HitRate

_shown, _done = impressions.c, interactions.c


class SqlKpis:
    """Implements KpiSource."""

    def __init__(self, engine: Engine) -> None:
        self._reads = engine.execution_options(read_only=True)

    def samples(
        self, recommender: str, generation: int, window: timedelta, attribution: timedelta, now: datetime
    ) -> Mapping[str, VariantSample]:
        """Reads only an index, in its order, one user after the other, so that nothing is sorted or buffered."""
        query = _samples(recommender, generation, length(window), length(attribution), instant(now))
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return {row.variant: sample(row) for row in rows}

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        with self._reads.connect() as connection:
            return traffic_of(connection, recommender, generation, instant(now))

    def hit_rate(self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta) -> HitRate:
        answers = _of_answers(select(_shown.at, _shown.hit_at), recommender, version, since, until)
        return self._count(answers.subquery(), attribution)

    def empty(self, recommender: str, versions: Collection[int], since: datetime, until: datetime) -> EmptyAnswers:
        answers = empty = 0
        with self._reads.connect() as connection:
            for version in versions:
                shown = or_(_shown.fallback.is_(None), _shown.fallback != FRONT_END)
                counts: Any = select(func.count(), func.count().filter(_shown.fallback == NOTHING_LEFT))
                row = connection.execute(_of_answers(counts, recommender, version, since, until).where(shown)).one()
                answers, empty = answers + row[0], empty + row[1]
        return EmptyAnswers(answers, empty)

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> AnswerOutcomes:
        return self._earned(recommender, version, since, until, attribution, conversions).get((), AnswerOutcomes())

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> Mapping[AnswerGroup, AnswerOutcomes]:
        keys = (_shown.variant, _shown.fallback, _shown.slices)
        earnings = self._earned(recommender, version, since, until, attribution, conversions, keys)
        return {
            AnswerGroup(variant, fallback, tuple((slices or "").split())): earned
            for (variant, fallback, slices), earned in earnings.items()
        }

    def steps(
        self,
        recommender: str,
        version: int,
        since: datetime,
        until: datetime,
        every: timedelta,
        attribution: timedelta,
        conversions: Collection[str],
    ) -> Mapping[int, AnswerOutcomes]:
        step = (_shown.at - instant(since)) // length(every)
        earnings = self._earned(recommender, version, since, until, attribution, conversions, (step,))
        return {int(at): earned for (at,), earned in earnings.items()}

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> ItemShowings:
        newest = (_shown.at.desc(), _shown.request_id.desc())
        query = _of_answers(select(_shown["items"]), recommender, version, since, until).order_by(*newest).limit(limit)
        with self._reads.connect() as connection:
            lists = [read for text in connection.execute(query).scalars() if (read := read_items(text)) is not None]
        return ItemShowings(len(lists), Counter(item for shown_items in lists for item in set(shown_items)))

    def liked(self, recommender: str, until: datetime, limit: int) -> Mapping[int, int]:
        newest = (_done.at.desc(), _done.seq.desc())
        conditions = (_done.recommender == recommender, _done.at < instant(until), _done.positive.is_(True))
        with self._reads.connect() as connection:
            return Counter(connection.execute(select(_done.item).where(*conditions).order_by(*newest).limit(limit)).scalars())

    def _earned(
        self,
        recommender: str,
        version: int,
        since: datetime,
        until: datetime,
        attribution: timedelta,
        conversions: Collection[str],
        keys: Sequence[ColumnElement[Any]] = (),
    ) -> Mapping[Key, AnswerOutcomes]:
        with self._reads.connect() as connection:
            return earned_by(connection, recommender, version, instant(since), instant(until), length(attribution), conversions, keys)

    def _count(self, answers: FromClause, attribution: timedelta) -> HitRate:
        query = select(func.count().label("answers"), hits(answers.c, length(attribution)).label("hits")).select_from(answers)
        with self._reads.connect() as connection:
            row = connection.execute(query).one()
        return HitRate(row.answers, row.hits)


def _of_answers(query: Select[Any], recommender: str, version: int, since: datetime, until: datetime) -> Select[Any]:
    return query.where(*answers_of(recommender, version, instant(since), instant(until)))


def _samples(recommender: str, generation: int, window: int, attribution: int, now: int) -> Select[Any]:
    """Counts by intention to treat: every request that was assigned to a variant, unless no version could be asked at all."""
    conditions = (_shown.recommender == recommender, _shown.generation == generation, _shown.fallback.is_distinct_from(SERVER_AWAY))
    first = func.min(_shown.at).over(partition_by=(_shown.variant, _shown.user))
    answers = select(_shown.variant, _shown.user, _shown.at, _shown.hit_at, first.label("first")).where(*conditions).subquery()
    users = (
        select(answers.c.variant, func.count().label("answers"), hits(answers.c, attribution).label("hits"))
        .where(answers.c.first <= now - window - attribution, answers.c.at <= answers.c.first + window)
        .group_by(answers.c.variant, answers.c.user)
        .subquery()
    )
    return over_users(users, "variant")
