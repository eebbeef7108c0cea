"""Clock of the platform: one time for all processes that share a database.

On PostgreSQL: the database's clock, read regularly and extrapolated in between. So a machine with a wrong clock neither delays the work of
others nor collects, expires or refuses anything wrongly. On SQLite: the machine's clock, because the database is on one machine.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, func, select

log = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two reads of the database's clock."""
_SAME = timedelta(milliseconds=100)
"""Smaller differences are not corrected: reading the clock itself takes time."""
_WRONG = timedelta(seconds=5)


class DatabaseClock:
    """Implements Clock."""

    def __init__(self, engine: Engine) -> None:
        self._reads = engine.execution_options(read_only=True) if engine.dialect.name == "postgresql" else None
        self._anchor: tuple[datetime, float] | None = None
        self._wrong = False
        self.synchronise()

    def now(self) -> datetime:
        anchor = self._anchor
        return datetime.now(UTC) if anchor is None else anchor[0] + timedelta(seconds=_elapsed() - anchor[1])

    def synchronise(self) -> None:
        """Reads the clock of a PostgreSQL database; does nothing on SQLite."""
        if self._reads is None:
            return
        with self._reads.connect() as connection:
            connection.execute(select(1))  # connects before the measurement
            began = _elapsed()
            database: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
            ended = _elapsed()
        if self._anchor is None or abs(database - self.now()) > _SAME:
            self._anchor = database.astimezone(UTC), (began + ended) / 2
        self._compare(datetime.now(UTC) - self.now())

    def _compare(self, ahead: timedelta) -> None:
        """Logs once when the machine's clock becomes wrong, and once when it is right again."""
        wrong = abs(ahead) > _WRONG
        if wrong and not self._wrong:
            log.warning("clock: differs from the database's clock, which is used instead seconds_ahead=%.0f", ahead.total_seconds())
        elif self._wrong and not wrong:
            log.info("clock: agrees with the database's clock again")
        self._wrong = wrong


def _elapsed() -> float:
    """Returns seconds of a clock that can't be set and continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
