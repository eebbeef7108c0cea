"""Leases in SQL: rights of one holder for a limited time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import Engine, delete, not_, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.store.lease_time import is_live, later, lease_time
from services.store.tables import leases
from shared.ports import LONGEST_TERM

_FORGOTTEN = timedelta(days=1)
"""Leases that expired this long ago are deleted: a replica that died never returns under its name."""

_lease = leases.c


class SqlLeases:
    """Implements Leases. One statement decides: of two concurrent holders the second sees the lease of the first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    def hold(self, name: str, holder: str, term: timedelta) -> bool:
        if not timedelta(0) < term <= LONGEST_TERM:
            raise ValueError(f"a lease lasts up to {LONGEST_TERM}, not {term}")
        now = lease_time(self._engine)
        until = later(now, term)
        renewed = update(leases).where(_lease.name == name, _lease.holder == holder).values(until=until)
        claim = (
            self._insert(leases)
            .values(name=name, holder=holder, until=until)
            .on_conflict_do_update(
                index_elements=[_lease.name],
                set_={"holder": holder, "until": until},
                where=or_(_lease.holder == holder, not_(is_live(_lease.until, now))),
            )
        )
        with self._engine.begin() as connection:
            if connection.execute(renewed).rowcount:
                return True
            connection.execute(delete(leases).where(_lease.until < later(now, -_FORGOTTEN)))
            return connection.execute(claim.returning(_lease.name)).first() is not None

    def release(self, name: str, holder: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(leases).where(_lease.name == name, _lease.holder == holder))

    def live(self, prefix: str) -> Sequence[str]:
        conditions = (_lease.name.startswith(prefix, autoescape=True), is_live(_lease.until, lease_time(self._engine)))
        with self._reads.connect() as connection:
            return connection.execute(select(_lease.name).where(*conditions).order_by(_lease.name)).scalars().all()
