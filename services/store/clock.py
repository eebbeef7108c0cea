"""The time by which everything is decided and stored: one clock for all processes that share a database.

On PostgreSQL it is the database's, asked for again and again and carried on between two answers. So a machine whose clock is wrong neither
postpones what others are to do nor collects, expires or refuses what it shouldn't. A SQLite database is on one machine, whose clock it is.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, func, select

log = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two looks at the database's clock."""
_SAME = timedelta(milliseconds=100)
"""Clocks that differ by less are not corrected: the answer itself takes a while."""
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
        """Asks the database what time it is."""
        if self._reads is None:
            return
        with self._reads.connect() as connection:
            connection.execute(select(1))  # connecting takes its time
            began = _elapsed()
            database: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
            ended = _elapsed()
        if self._anchor is None or abs(database - self.now()) > _SAME:
            self._anchor = database.astimezone(UTC), (began + ended) / 2
        self._compare(datetime.now(UTC) - self.now())

    def _compare(self, ahead: timedelta) -> None:
        """Each change once."""
        wrong = abs(ahead) > _WRONG
        if wrong and not self._wrong:
            how = "ahead of" if ahead > timedelta(0) else "behind"
            seconds = abs(ahead).total_seconds()
            log.warning("clock: this machine's is %s the database's, which is used instead seconds=%.0f", how, seconds)
        elif self._wrong and not wrong:
            log.info("clock: this machine's agrees with the database's again")
        self._wrong = wrong


def _elapsed() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
