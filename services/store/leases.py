"""Leases: who may do what only one at a time does, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Engine, delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.store.tables import leases

_FORGOTTEN = timedelta(days=1)
"""A lease that ran out this long ago is nobody's: replicas that died leave theirs, and never come back under their names."""

_lease = leases.c


class SqlLeases:
    """Implements Leases. One statement decides: of two who ask at once the second sees what the first took."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    def hold(self, name: str, holder: str, now: datetime, term: timedelta) -> bool:
        mine = (_lease.name == name, _lease.holder == holder)
        taken = (
            self._insert(leases)
            .values(name=name, holder=holder, until=now + term)
            .on_conflict_do_update(
                index_elements=[_lease.name],
                set_={"holder": holder, "until": now + term},
                where=or_(_lease.holder == holder, _lease.until <= now),
            )
        )
        with self._engine.begin() as connection:
            if connection.execute(update(leases).where(*mine).values(until=now + term)).rowcount:
                return True
            connection.execute(delete(leases).where(_lease.until < now - _FORGOTTEN))
            return connection.execute(taken.returning(_lease.name)).first() is not None

    def release(self, name: str, holder: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(leases).where(_lease.name == name, _lease.holder == holder))

    def live(self, prefix: str, now: datetime) -> Sequence[str]:
        query = select(_lease.name).where(_lease.name.startswith(prefix, autoescape=True), _lease.until > now).order_by(_lease.name)
        with self._reads.connect() as connection:
            return connection.execute(query).scalars().all()
