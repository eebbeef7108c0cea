"""The time that leases are compared with.

On PostgreSQL it is the database's: what the clocks of control planes say doesn't matter. A SQLite database is on one machine, whose clock
all its processes share. Either clock may be set back: so a lease that lasts longer than any that can be granted is over.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, ColumnElement, Engine, and_, cast, func, literal, type_coerce

from services.store.columns import Instant
from shared.ports import LONGEST_TERM, Clock

_OPTION = "lease_clock"


def use_clock(engine: Engine, clock: Clock) -> None:
    """Compares leases with this clock instead: for tests."""
    engine.update_execution_options(**{_OPTION: clock})


def lease_time(engine: Engine) -> ColumnElement[datetime]:
    clock: Clock | None = engine.get_execution_options().get(_OPTION)
    if clock is None and engine.dialect.name == "postgresql":
        return type_coerce(cast(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger), Instant)
    return literal(clock.now() if clock is not None else datetime.now(UTC), Instant)


def later(now: ColumnElement[datetime], span: timedelta) -> ColumnElement[datetime]:
    """Instants are numbers, and so are added as such."""
    return type_coerce(now.op("+", return_type=BigInteger())(literal(span // timedelta(microseconds=1), BigInteger)), Instant)


def is_live(until: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
    return and_(until > now, until <= later(now, LONGEST_TERM))
