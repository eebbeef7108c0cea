"""ForgottenUsers in SQL, and the refusal of events of forgotten users.

A writer of events takes the lock of each user before it reads the ledger, and so does a forgetting before it writes it. So a writer either
commits before the last rows are deleted, or sees the ledger.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.eventlog.impression_lookup import portions
from services.eventlog.locks import take_turns
from services.eventlog.tables import forgotten_users, impressions, instant, interactions, moment
from shared.domain.forgetting import ForgottenUser, UserDigest
from shared.ports import ForgottenRows
from shared.telemetry import metrics

log = logging.getLogger(__name__)

E = TypeVar("E")
AT_ONCE = 500
"""Rows in one transaction, which other writers wait for."""
_LEDGER = "forgotten users"
"""Name of the lock of a recommender's ledger."""
_user = forgotten_users.c
_KEYS = (interactions.c.seq, impressions.c.request_id)


class SqlForgottenUsers:
    """Implements ForgottenUsers."""

    def __init__(self, engine: Engine, digest: UserDigest, refuse_older_code: Callable[[], None] = lambda: None) -> None:
        """`refuse_older_code` is called when a user is forgotten: code that does not know the ledger would learn from its files again."""
        self._refuse_older_code = refuse_older_code
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._wal_has_old_pages = False
        self.digest = digest

    def forget(self, recommender: str, key: int, now: Callable[[], datetime]) -> ForgottenRows:
        counts, at, is_last = [0, 0], 0, False
        while not is_last:
            with self._engine.begin() as connection:
                take_turns(connection, [(recommender, key), (recommender, _LEDGER)])
                at, left = max(at, instant(now())), AT_ONCE
                for place, id_column in enumerate(_KEYS):
                    columns: Any = id_column.table.c
                    of_user = (columns.recommender == recommender, columns.user == key)
                    rows = connection.execute(select(id_column.label("id"), columns.at).where(*of_user).limit(left)).all()
                    if rows:
                        at = max(at, *(row.at for row in rows))
                        ids = [row.id for row in rows]
                        counts[place] += connection.execute(delete(id_column.table).where(id_column.in_(ids))).rowcount
                        left -= len(rows)
                is_last = left > 0
                if is_last:
                    self._remember(connection, recommender, [ForgottenUser(self.digest.of(key), moment(at))])
        self._refuse_older_code()
        self._clear_wal()
        return ForgottenRows(moment(at), *counts)

    def keys(self, recommender: str) -> Collection[int]:
        keys: set[int] = set()
        with self._reads.connect() as connection:
            for table in (interactions, impressions):
                keys.update(connection.execute(select(table.c.user).where(table.c.recommender == recommender).distinct()).scalars())
        return keys

    def all(self, recommender: str) -> Sequence[ForgottenUser]:
        newest = func.row_number().over(partition_by=_user.digest, order_by=_user.at.desc()).label("place")
        ranked = select(forgotten_users, newest).where(_user.recommender == recommender).subquery()
        rows = select(ranked).where(ranked.c.place == 1).order_by(ranked.c.digest)
        with self._engine.begin() as connection:
            take_turns(connection, [(recommender, _LEDGER)])
            return [ForgottenUser(row.digest, moment(row.at), row.archived) for row in connection.execute(rows)]

    def recommenders(self) -> Collection[str]:
        with self._reads.connect() as connection:
            return connection.execute(select(_user.recommender).distinct()).scalars().all()

    def pending(self) -> Collection[str]:
        if self._wal_has_old_pages:
            self._clear_wal()
        with self._reads.connect() as connection:
            return connection.execute(select(_user.recommender).where(_user.archived.is_(False)).distinct()).scalars().all()

    def mark_archived(self, recommender: str, users: Mapping[str, datetime]) -> None:
        with self._engine.begin() as connection:
            for digest, at in users.items():
                of_user = (_user.recommender == recommender, _user.digest == digest, _user.at <= instant(at))
                connection.execute(update(forgotten_users).where(*of_user).values(archived=True))

    def unmark_archived(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(forgotten_users).values(archived=False))

    def replay(self, recommender: str, users: Sequence[ForgottenUser]) -> None:
        with self._engine.begin() as connection:
            self._remember(connection, recommender, users)
        self._refuse_older_code()

    def newest(self, recommender: str, until: datetime | None = None) -> datetime | None:
        query = select(func.max(_user.at)).where(_user.recommender == recommender)
        if until is not None:
            query = query.where(_user.at <= instant(until))
        with self._reads.connect() as connection:
            at = connection.execute(query).scalar()
        return None if at is None else moment(at)

    def _clear_wal(self) -> None:
        """Removes old pages from SQLite's write-ahead log. If a reader needs them for more than a second, `pending` tries again."""
        if self._engine.dialect.name == "sqlite":
            with self._engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                patience = driver.execute("PRAGMA busy_timeout").fetchone()[0]
                driver.execute("PRAGMA busy_timeout=1000").close()
                try:
                    (is_busy, *_) = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    driver.execute(f"PRAGMA busy_timeout={patience}").close()
            self._wal_has_old_pages = bool(is_busy)

    def _remember(self, connection: Connection, recommender: str, users: Sequence[ForgottenUser]) -> None:
        new = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(forgotten_users)
        rows = [{"recommender": recommender, "digest": user.digest, "at": instant(user.at), "archived": False} for user in users]
        if rows:
            connection.execute(new.on_conflict_do_nothing(), rows)


def without_forgotten(
    connection: Connection, digest: UserDigest, events: Sequence[E], place: Callable[[E], tuple[str, int, int]]
) -> list[E]:
    """Returns the events without those of forgotten users from before the forgetting, which it counts and logs. `place` returns the
    recommender, the user and the instant of an event."""
    places = [place(event) for event in events]
    forgotten = _forgotten(connection, digest, places)
    if not forgotten:
        return list(events)
    late = [at <= forgotten.get((recommender, user), at - 1) for recommender, user, at in places]
    for recommender, count in Counter(place[0] for place, is_late in zip(places, late, strict=True) if is_late).items():
        metrics.TOO_OLD.labels(recommender).inc(count)
        log.warning("event log: events of forgotten users are left out recommender=%s events=%d", recommender, count)
    return [event for event, is_late in zip(events, late, strict=True) if not is_late]


def _forgotten(connection: Connection, digest: UserDigest, places: Sequence[tuple[str, int, int]]) -> dict[tuple[str, int], int]:
    """Returns when users of these events were forgotten. Costs one short query if the events are newer than any forgetting."""
    names = sorted({recommender for recommender, _, _ in places})
    newest_at = select(_user.recommender, func.max(_user.at).label("newest")).where(_user.recommender.in_(names))
    newest = {row.recommender: row.newest for row in connection.execute(newest_at.group_by(_user.recommender))}
    forgotten: dict[tuple[str, int], int] = {}
    for recommender, bound in newest.items():
        suspects = {user for name, user, at in places if name == recommender and at <= bound}
        users = {digest.of(user): user for user in suspects}
        for some in portions(sorted(users)):
            of_users: ColumnElement[bool] = _user.digest.in_(some)
            rows = select(_user.digest, func.max(_user.at).label("newest")).where(_user.recommender == recommender, of_users)
            for row in connection.execute(rows.group_by(_user.digest)):
                forgotten[recommender, users[row.digest]] = row.newest
    return forgotten
