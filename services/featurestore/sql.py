"""Feature store in the database: one row per key; a row that counts more replaces it in one statement."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Table, and_, bindparam, delete, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from services.featurestore.tables import feature_values, feature_views
from shared.domain.feature_values import StoredRow, check_place, instant, is_over, moment, newest, read_row
from shared.ports import FeatureRows

log = logging.getLogger(__name__)
T = TypeVar("T")

AT_ONCE = 500
_value = feature_values.c
_READ = select(feature_values).where(
    _value.recommender == bindparam("recommender"),
    _value.view.in_(bindparam("views", expanding=True)),
    _value.entity.in_(bindparam("keys", expanding=True)),
)


class SqlFeatureStore:
    """Implements FeatureStore with small writes: a transaction holds at most some hundred rows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        check_place(view)
        stand = 0
        for some in batched(by_key(rows), AT_ONCE):
            with self._engine.begin() as connection:
                self._enter(connection, recommender, view)
                stand += put(connection, feature_values, recommender, view, some)
        if not rows:
            with self._engine.begin() as connection:
                self._enter(connection, recommender, view)
        return stand

    def read(self, recommender: str, views: Mapping[str, timedelta | None], keys: Collection[int], now: datetime) -> FeatureRows:
        rows: dict[tuple[str, int], StoredRow] = {}
        expired: dict[tuple[str, int], datetime] = {}
        if not views or not keys:
            return FeatureRows(rows, expired)
        with self._reads.connect() as connection:
            parameters = {"recommender": recommender, "views": sorted(views), "keys": sorted(set(keys))}
            records = connection.execute(_READ, parameters).all()
        for record in records:
            at = moment(record.at)
            if is_over(at, views[record.view], now):
                expired[record.view, record.entity] = at
            elif at <= now and (row := sound(record)) is not None:
                rows[record.view, record.entity] = row
        return FeatureRows(rows, expired)

    def mark(self, recommender: str, view: str, count: int) -> None:
        check_place(view)
        with self._engine.begin() as connection:
            new = insert(connection, feature_views).values(recommender=recommender, view=view, count=count)
            connection.execute(new.on_conflict_do_update(index_elements=["recommender", "view"], set_={"count": count}))

    def marks(self) -> Mapping[tuple[str, str], int]:
        with self._reads.connect() as connection:
            return {(row.recommender, row.view): row.count_ for row in connection.execute(_MARKS)}

    def forget(self, recommender: str, view: str) -> None:
        """Deletes the mark last, so that an interrupted deletion is repeated."""
        conditions = (_value.recommender == recommender, _value.view == view)
        while True:
            with self._engine.begin() as connection:
                keys = connection.execute(select(_value.entity).where(*conditions).limit(10 * AT_ONCE)).scalars().all()
                if keys:
                    connection.execute(delete(feature_values).where(*conditions, _value.entity.between(min(keys), max(keys))))
                    continue
                marks = feature_views.c
                connection.execute(delete(feature_views).where(marks.recommender == recommender, marks.view == view))
                return

    def forget_key(self, recommender: str, view: str, key: int) -> int:
        of_key = (_value.recommender == recommender, _value.view == view, _value.entity == key)
        with self._engine.begin() as connection:
            return connection.execute(delete(feature_values).where(*of_key)).rowcount

    def keys(self, recommender: str, view: str) -> Collection[int]:
        with self._reads.connect() as connection:
            return connection.execute(select(_value.entity).where(_value.recommender == recommender, _value.view == view)).scalars().all()

    def _enter(self, connection: Connection, recommender: str, view: str) -> None:
        new = insert(connection, feature_views).values(recommender=recommender, view=view, count=0)
        connection.execute(new.on_conflict_do_nothing(index_elements=["recommender", "view"]))


_MARKS = select(feature_views.c.recommender, feature_views.c.view, feature_views.c["count"].label("count_"))


def insert(connection: Connection, table: Table) -> Any:
    """Returns the insert of the dialect, with ON CONFLICT."""
    return (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table)


def put(connection: Connection, table: Table, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
    """Writes the rows, unless the stored row counts more. Returns how many rows were written."""
    values = [
        {"recommender": recommender, "view": view, "entity": row.key, "at": instant(row.at), "digest": row.digest, "body": row.text}
        for row in rows
    ]
    new = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    rest = {column.name: new.excluded[column.name] for column in table.c if column.name not in keys}
    written = new.on_conflict_do_update(index_elements=keys, set_=rest, where=_counts_more(table, new)).returning(table.c.entity)
    return len(connection.execute(written, values).all())


def by_key(rows: Sequence[StoredRow]) -> list[StoredRow]:
    """Returns the row that counts of each key, sorted by key, so that writers don't deadlock."""
    return sorted(newest(rows).values(), key=lambda row: row.key)


def batched(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, size)):
        yield some


def sound(row: Row[Any]) -> StoredRow | None:
    """Returns None for an unreadable row, and logs it; the other rows are still read."""
    try:
        return read_row(row.entity, moment(row.at), row.body)
    except (ValueError, RecursionError) as error:
        values = (row.recommender, row.view, row.entity, error)
        log.error("feature values: unreadable, count as absent recommender=%s view=%s key=%d error=%s", *values)
        return None


def _counts_more(table: Table, new: Any) -> ColumnElement[bool]:
    at, digest = new.excluded["at"], new.excluded["digest"]
    return or_(at > table.c["at"], and_(at == table.c["at"], digest > table.c["digest"]))
