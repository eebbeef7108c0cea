"""Samples for drift detection from SQL: single positives and scores, and hits per block of time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import JSON, Engine, Integer, Select, Text, bindparam, cast, column, func, select

from services.eventlog.tables import answered_by_version, impressions, instant, interactions, length, moment
from services.eventlog.user_aggregates import hits, over_users, sample
from shared.domain.sequential_test import VariantSample
from shared.ports import AnswerScore, Like, NewestTimes

_shown, _liked = impressions.c, interactions.c


class SqlDriftSamples:
    """Implements DriftSamples."""

    def __init__(self, engine: Engine) -> None:
        self._reads = engine.execution_options(read_only=True)
        self._newest = _newest(engine.dialect.name)

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        order = (_liked.at.desc(), _liked.seq.desc()) if newest else (_liked.at, _liked.seq)
        conditions = (_liked.recommender == recommender, _liked.at >= instant(since), _liked.positive.is_(True))
        query = select(_liked.user, _liked.item, _liked.at).where(*conditions).order_by(*order).limit(count)
        with self._reads.connect() as connection:
            return [Like(row.user, row.item, moment(row.at)) for row in connection.execute(query)]

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[AnswerScore]:
        order = (_shown.at.desc(), _shown.request_id.desc()) if newest else (_shown.at, _shown.request_id)
        conditions = (_shown.recommender == recommender, _shown.version == version, _shown.at >= instant(since))
        own = (_shown.fallback.is_(None), _shown.score.is_not(None))  # an empty answer has no score
        query = select(_shown.user, _shown.score, _shown.at).where(*conditions, *own).order_by(*order).limit(count)
        with self._reads.connect() as connection:
            return [AnswerScore(row.user, row.score, moment(row.at)) for row in connection.execute(query)]

    def blocks(
        self, recommender: str, version: int, since: datetime, until: datetime, every: timedelta, attribution: timedelta
    ) -> Mapping[int, VariantSample]:
        begin, span = instant(since), length(every)
        conditions = (_shown.recommender == recommender, _shown.version == version, _shown.at >= begin, _shown.at < instant(until))
        block = ((_shown.at - begin) // span).label("block")
        users = (
            select(block, func.count().label("answers"), hits(_shown, length(attribution)).label("hits"))
            .where(*conditions, answered_by_version(_shown.fallback))
            .group_by("block", _shown.user)
            .subquery()
        )
        with self._reads.connect() as connection:
            rows = connection.execute(over_users(users, "block")).all()
        return {row.block: sample(row) for row in rows}

    def newest(self, versions: Mapping[str, int]) -> Mapping[str, NewestTimes]:
        with self._reads.connect() as connection:
            rows = connection.execute(self._newest, {"versions": json.dumps(dict(versions))}).all()
        return {row.name: NewestTimes(*(None if at is None else moment(at) for at in (row.answer, row.event))) for row in rows}


def _newest(dialect: str) -> Select[Any]:
    """Returns one statement for all recommenders, with two lookups at the end of an index for each."""
    versions: Any = bindparam("versions", type_=Text)
    listed = func.json_each_text(cast(versions, JSON)) if dialect == "postgresql" else func.json_each(versions)
    requested = (
        listed.table_valued(column("key", Text), column("value", Text)).render_derived("asked")
        if dialect == "postgresql"
        else (listed.table_valued(column("key", Text), column("value", Integer), name="asked"))
    )
    version = cast(requested.c.value, Integer)
    answer = select(func.max(_shown.at)).where(_shown.recommender == requested.c.key, _shown.version == version).scalar_subquery()
    event = select(func.max(_liked.at)).where(_liked.recommender == requested.c.key).scalar_subquery()
    newest = select(requested.c.key.label("name"), answer.label("answer"), event.label("event")).subquery()
    return select(newest).where((newest.c.answer.is_not(None)) | (newest.c.event.is_not(None)))
