"""Events as files of days: which days are closed, which of them are to be written, and what a reader takes from where.

A day is a day in UTC. What is stored of it may grow when stragglers come, and never shrinks: so as many rows as were written are the
same rows, and a day of which there are more by now has rows that no file has yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

GRACE = timedelta(hours=1)
"""For what comes late: journals that wait for a database, streams, senders that try again."""
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Stretch:
    """Of the time that is read; `day`: as its files have it."""

    since: datetime | None
    until: datetime
    day: date | None = None


def start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def closed_before(now: datetime, attribution: timedelta) -> datetime:
    """The midnight before which all days are closed: nothing on them can still be reacted to, and a grace has passed."""
    return start_of((now.astimezone(UTC) - attribution - GRACE).date())


def due(stored: Mapping[date, int], written: Mapping[date, int]) -> list[date]:
    """Days with rows that aren't written, the oldest first."""
    return sorted(day for day, rows in stored.items() if rows > written.get(day, 0))


def stretches(since: datetime | None, until: datetime, stored: Mapping[date, int], written: Mapping[date, int]) -> Iterator[Stretch]:
    """[since, until) in order, each moment once: whole days of which everything is written, and what lies between them."""
    at = since
    for day in sorted(written):
        start = start_of(day)
        if written[day] != stored.get(day) or (at is not None and start < at) or start + DAY > until:
            continue
        if at is None or at < start:
            yield Stretch(at, start)
        yield Stretch(start, start + DAY, day)
        at = start + DAY
    if at is None or at < until:
        yield Stretch(at, until)
