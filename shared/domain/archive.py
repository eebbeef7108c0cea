"""Archive of events in files, one per day: which days are closed, which are due to be written, and which parts a reader takes from files.

Days are in UTC. The stored rows of a day can increase when late events arrive, and decrease only by the deletion of old days. So if the
written count of another day equals the stored count, the files have all rows; if more rows are stored, some rows are in no file yet. A day
is deleted only when the files have all its rows, and the database refuses further ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

GRACE = timedelta(hours=1)
"""Extra time for late events: journals that wait for a database, streams, and senders that retry."""
DAY = timedelta(days=1)
REFUSAL_LEAD = timedelta(days=1)
"""Time between refusing events of a day and deleting its rows: longer than a rolling upgrade, whose older processes refuse nothing."""


@dataclass(frozen=True)
class TimePart:
    """Part of a time range that a reader reads. With a `day`, the rows come from the files of that day, also those before `since`."""

    since: datetime | None
    until: datetime
    day: date | None = None


def start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def closed_before(now: datetime, attribution: timedelta) -> datetime:
    """Returns the midnight before which all days are closed: their attribution windows and the grace period have passed."""
    return start_of((now.astimezone(UTC) - attribution - GRACE).date())


def too_old_before(now: datetime, horizon: timedelta) -> datetime:
    """Returns the midnight before which events are refused and can be deleted. Events within the horizon have at least a day to arrive."""
    return start_of((now.astimezone(UTC) - horizon - DAY).date())


def due(stored: Mapping[date, int], written: Mapping[date, int]) -> list[date]:
    """Returns the days with rows that are not written yet, oldest first."""
    return sorted(day for day, rows in stored.items() if rows > written.get(day, 0))


def stretches(
    since: datetime | None, until: datetime, stored: Mapping[date, int], written: Mapping[date, int], deleted_before: date | None = None
) -> Iterator[TimePart]:
    """Splits [since, until) in order and without overlap: days that are completely written, and the ranges between them. Days before
    `deleted_before` are in files only, so the files of such a day are used even if `since` is in the middle of it."""
    at = since
    for day in sorted(written):
        start = start_of(day)
        latest = start if deleted_before is None or day >= deleted_before else start + DAY - timedelta.resolution
        if written[day] != stored.get(day) or (at is not None and at > latest) or start + DAY > until:
            continue
        if at is None or at < start:
            yield TimePart(at, start)
        yield TimePart(start if at is None else max(at, start), start + DAY, day)
        at = start + DAY
    if at is None or at < until:
        yield TimePart(at, until)
