"""Archive of events in files, one per day: which days are closed, which are due to be written, and which parts a reader takes from files.

Days are in UTC. The stored rows of a day can increase when late events arrive, and never decrease. So if the written count equals the
stored count, the files have all rows; if more rows are stored, some rows are in no file yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

GRACE = timedelta(hours=1)
"""Extra time for late events: journals that wait for a database, streams, and senders that retry."""
DAY = timedelta(days=1)


@dataclass(frozen=True)
class TimePart:
    """Part of a time range that a reader reads. With a `day`, the rows come from the files of that day."""

    since: datetime | None
    until: datetime
    day: date | None = None


def start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def closed_before(now: datetime, attribution: timedelta) -> datetime:
    """Returns the midnight before which all days are closed: their attribution windows and the grace period have passed."""
    return start_of((now.astimezone(UTC) - attribution - GRACE).date())


def due(stored: Mapping[date, int], written: Mapping[date, int]) -> list[date]:
    """Returns the days with rows that are not written yet, oldest first."""
    return sorted(day for day, rows in stored.items() if rows > written.get(day, 0))


def stretches(since: datetime | None, until: datetime, stored: Mapping[date, int], written: Mapping[date, int]) -> Iterator[TimePart]:
    """Splits [since, until) in order and without overlap: days that are completely written, and the ranges between them."""
    at = since
    for day in sorted(written):
        start = start_of(day)
        if written[day] != stored.get(day) or (at is not None and start < at) or start + DAY > until:
            continue
        if at is None or at < start:
            yield TimePart(at, start)
        yield TimePart(start, start + DAY, day)
        at = start + DAY
    if at is None or at < until:
        yield TimePart(at, until)
