"""Time to compare leases with.

On PostgreSQL: the database's time, so that the clocks of control planes don't matter. On SQLite: the machine's clock, which all processes
share. Either clock may be set back, so a lease that lasts longer than the longest term counts as expired.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, ColumnElement, Engine, and_, cast, func, literal, type_coerce

from services.store.columns import Instant
from shared.ports import LONGEST_TERM, Clock

_OPTION = "lease_clock"


def use_clock(engine: Engine, clock: Clock) -> None:
    """Compares the engine's leases with `clock` instead: for tests."""
    engine.update_execution_options(**{_OPTION: clock})


def lease_time(engine: Engine) -> ColumnElement[datetime]:
    clock: Clock | None = engine.get_execution_options().get(_OPTION)
    if clock is None and engine.dialect.name == "postgresql":
        return type_coerce(cast(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger), Instant)
    return literal(clock.now() if clock is not None else datetime.now(UTC), Instant)


def later(now: ColumnElement[datetime], span: timedelta) -> ColumnElement[datetime]:
    """Adds the span as a number, because instants are stored as numbers."""
    return type_coerce(now.op("+", return_type=BigInteger())(literal(span // timedelta(microseconds=1), BigInteger)), Instant)


def is_live(until: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
    return and_(until > now, until <= later(now, LONGEST_TERM))
