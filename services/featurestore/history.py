"""History of all feature values, in the database: training reads it, and a store that lost its rows is filled from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine, delete, exists, func, select

from services.featurestore.sql import AT_ONCE, batched, put, sound
from services.featurestore.tables import feature_history
from shared.domain.feature_values import StoredRow, check_place, instant, is_over, moment

_row = feature_history.c


class SqlFeatureHistory:
    """Implements FeatureHistory."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def append(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        check_place(view)
        unique = {(row.key, row.at): row for row in sorted(rows, key=lambda row: row.rank)}
        new = 0
        for some in batched([unique[place] for place in sorted(unique)], AT_ONCE):
            with self._engine.begin() as connection:
                new += put(connection, feature_history, recommender, view, some)
        return new

    def as_of(
        self, recommender: str, view: str, lookups: Sequence[tuple[int, datetime]], ttl: timedelta | None
    ) -> Sequence[StoredRow | None]:
        rows: list[StoredRow | None] = []
        with self._reads.connect() as connection:
            for key, at in lookups:
                conditions = (_row.recommender == recommender, _row.view == view, _row.entity == key, _row["at"] <= instant(at))
                row = connection.execute(select(feature_history).where(*conditions).order_by(_row["at"].desc()).limit(1)).one_or_none()
                rows.append(None if row is None or is_over(moment(row.at), ttl, at) else sound(row))
        return rows

    def latest(self, recommender: str, view: str, limit: int, after: int | None = None) -> Sequence[StoredRow]:
        last = select(_row.entity, func.max(_row["at"]).label("last")).where(_row.recommender == recommender, _row.view == view)
        if after is not None:
            last = last.where(_row.entity > after)
        page = last.group_by(_row.entity).order_by(_row.entity).limit(limit).subquery()
        query = (
            select(feature_history)
            .join(page, (page.c.entity == _row.entity) & (page.c.last == _row["at"]))
            .where(_row.recommender == recommender, _row.view == view)
            .order_by(_row.entity)
        )
        with self._reads.connect() as connection:
            rows = connection.execute(query).all()
        return [row for record in rows if (row := sound(record)) is not None]

    def views(self) -> Collection[tuple[str, str]]:
        with self._reads.connect() as connection:
            return [(name, view) for name, view in connection.execute(select(_row.recommender, _row.view).distinct())]

    def export(self, recommender: str, view: str, until: datetime, to: Path) -> int:
        conditions = (_row.recommender == recommender, _row.view == view, _row["at"] < instant(until))
        query = select(feature_history).where(*conditions).order_by(_row.entity, _row["at"])
        count = 0
        with self._reads.connect() as connection, to.open("w", encoding="utf-8") as lines:
            for record in connection.execution_options(yield_per=AT_ONCE).execute(query):
                if (row := sound(record)) is not None:
                    document = {"key": row.key, "at": instant(row.at), "values": dict(row.values)}
                    lines.write(json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n")
                    count += 1
        return count

    def trim(self, recommender: str, before: datetime) -> int:
        later = feature_history.alias("later")
        follows = exists().where(
            later.c.recommender == _row.recommender,
            later.c.view == _row.view,
            later.c.entity == _row.entity,
            later.c["at"] > _row["at"],
            later.c["at"] <= instant(before),
        )
        with self._engine.begin() as connection:
            return connection.execute(
                delete(feature_history).where(_row.recommender == recommender, _row["at"] < instant(before), follows)
            ).rowcount

    def forget(self, recommender: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(feature_history).where(_row.recommender == recommender))

    def forget_key(self, recommender: str, key: int) -> int:
        with self._engine.begin() as connection:
            return connection.execute(delete(feature_history).where(_row.recommender == recommender, _row.entity == key)).rowcount

    def keys(self, recommender: str) -> Collection[int]:
        with self._reads.connect() as connection:
            return connection.execute(select(_row.entity).where(_row.recommender == recommender).distinct()).scalars().all()
