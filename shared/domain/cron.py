"""Cron schedules: five fields, evaluated on the wall clock of a time zone.

The fields are `minute hour day-of-month month day-of-week`. Each is `*`, a value, a range, a list, or a step (`*/15`, `8-18/2`). Months and
weekdays also have names (`JAN`, `MON`; 0 and 7 are Sunday). Shorthands: `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. If both day
fields are restricted, either may match; if a day field begins with `*`, both must match (as in Vixie's cron).

When clocks change, every matching local time is due once. A skipped time is due at the first instant after the gap, together with other
times that are due then; a repeated time is due the first time. So `30 2 * * *` is due every day, and `*/15 * * * *` pauses during a
repeated hour.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

_MINUTE = timedelta(minutes=1)
_MONTHS = {
    **{"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6},
    **{"JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10, "NOV": 11, "DEC": 12},
}
_WEEKDAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_PART = re.compile(r"(\*|[0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?(?:/([0-9A-Za-z]+))?")
_MAX_TEXT = 200
_LAST_YEAR = 9990


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]
    example: str


_FIELDS = (
    _Field("minute", 0, 59, {}, "0-59"),
    _Field("hour", 0, 23, {}, "0-23"),
    _Field("day of month", 1, 31, {}, "1-31"),
    _Field("month", 1, 12, _MONTHS, "1-12 or JAN-DEC"),
    _Field("day of week", 0, 7, _WEEKDAYS, "0-7 or SUN-SAT"),
)


@dataclass(frozen=True)
class Cron:
    """Schedule with at least one due time; created by `parse`."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: tuple[int, ...]
    weekdays: frozenset[int]
    either: bool
    """Whether a match of one of the two day fields is enough."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Parses a schedule. The ValueError names the wrong field and the expected values."""
        fields = _split(text)
        minutes, hours, days, months, weekdays = (_values(field, field_text) for field, field_text in zip(_FIELDS, fields, strict=True))
        schedule = cls(
            text=" ".join(text.split()),
            minutes=tuple(sorted(minutes)),
            hours=tuple(sorted(hours)),
            days=frozenset(days),
            months=tuple(sorted(months)),
            weekdays=frozenset(day % 7 for day in weekdays),
            either=not fields[2].startswith("*") and not fields[4].startswith("*"),
        )
        if not schedule.either and not any(min(days) <= _longest(month) for month in months):
            named = ", ".join(name for name, number in _MONTHS.items() if number in months)
            raise ValueError(f"'{schedule.text}' is never due: there is no day {min(days)} in {named}")
        return schedule

    def next_after(self, instant: datetime, zone: ZoneInfo) -> datetime:
        """Returns the first due time later than the instant, in UTC."""
        local = instant.astimezone(zone).replace(tzinfo=None)
        start = local.replace(second=0, microsecond=0)
        for wall in self._walls(start if start == local else start + _MINUTE):
            due = _instant(wall, zone)
            if due > instant:
                return due
        raise OverflowError(f"'{self.text}' is not due before the year {_LAST_YEAR}")

    def last_until(self, after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
        """Returns the last due time in (after, until], in UTC. Bisects the range, so the number of due times between does not matter."""
        due = self.next_after(after, zone)
        if due > until:
            return None
        late = until
        while (following := self.next_after(due, zone)) <= until:
            due = following
            middle = due + (late - due) / 2
            next_due = self.next_after(middle, zone)
            if next_due <= until:
                due = next_due
            else:
                late = middle
        return due

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """Yields the matching local times from `start` on, including times that the clock skips."""
        for day in self._dates(start.date()):
            for hour in self.hours:
                for minute in self.minutes:
                    wall = datetime(day.year, day.month, day.day, hour, minute)
                    if wall >= start:
                        yield wall

    def _dates(self, start: date) -> Iterator[date]:
        for year in range(start.year, _LAST_YEAR):
            for month in self.months:
                if (year, month) < (start.year, start.month):
                    continue
                weekday, length = calendar.monthrange(year, month)
                for day in range(start.day if (year, month) == (start.year, start.month) else 1, length + 1):
                    if self._matches(day, (weekday + day) % 7):  # calendar weekdays start on Monday, cron weekdays on Sunday
                        yield date(year, month, day)

    def _matches(self, day: int, weekday: int) -> bool:
        by_day, by_weekday = day in self.days, weekday in self.weekdays
        return by_day or by_weekday if self.either else by_day and by_weekday


def zone(name: str) -> ZoneInfo:
    """Returns the time zone with this IANA name; raises ValueError for other texts."""
    if name not in _zones():
        raise ValueError(f"expected a time zone such as UTC or Europe/Berlin, got {name[:60]!r}")
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Returns the first instant with this local time; for a skipped time, the end of the gap."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return first
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # for a skipped time, fold 1 uses the offset after the gap
    after, offset = first, before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


def _split(text: str) -> Sequence[str]:
    if len(text) > _MAX_TEXT:
        raise ValueError(f"expected a schedule of at most {_MAX_TEXT} characters, got {len(text)}")
    expression = text.strip()
    if expression.startswith("@"):
        if expression.lower() not in _SHORTHANDS:
            raise ValueError(f"unknown schedule {expression!r}; known: {', '.join(_SHORTHANDS)}")
        expression = _SHORTHANDS[expression.lower()]
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        wanted = "minute, hour, day of month, month, day of week"
        raise ValueError(f"expected five fields ({wanted}) such as '0 3 * * *', got {len(fields)} in {text.strip()!r}")
    return fields


def _values(field: _Field, text: str) -> set[int]:
    return {value for part in text.split(",") for value in _part(field, part)}


def _part(field: _Field, text: str) -> range:
    match = _PART.fullmatch(text)
    if not match or (match[1] == "*" and match[2]):
        raise ValueError(f"{field.name}: expected *, a value, a range or a step (of {field.example}), got {text!r}")
    step = _step(field, match[3], text)
    if match[1] == "*":
        return range(field.low, (6 if field.names is _WEEKDAYS else field.high) + 1, step)
    low = _value(field, match[1])
    if match[2] is None:
        if match[3] is not None:
            raise ValueError(f"{field.name}: a step needs * or a range, such as {match[1]}-{field.high}/{match[3]}, got {text!r}")
        return range(low, low + 1)
    high = _value(field, match[2])
    if field.names is _WEEKDAYS and high == 0 and match[2].upper() == "SUN":
        high = 7
    if high < low:
        raise ValueError(f"{field.name}: the range {text!r} runs backwards: write two ranges with a comma")
    return range(low, high + 1, step)


def _step(field: _Field, text: str | None, part: str) -> int:
    if text is None:
        return 1
    span = field.high - field.low
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= span:
        raise ValueError(f"{field.name}: expected a step of 1 to {span}, got {part!r}")
    return int(text)


def _value(field: _Field, text: str) -> int:
    named = field.names.get(text.upper())
    if named is not None:
        return named
    if re.fullmatch(r"[0-9]{1,3}", text) and field.low <= int(text) <= field.high:
        return int(text)
    raise ValueError(f"{field.name}: expected {field.example}, got {text!r}")


def _longest(month: int) -> int:
    return calendar.monthrange(2000, month)[1]
