"""Cron schedules: five fields, evaluated on the wall clock of a time zone.

The fields are `minute hour day-of-month month day-of-week`, as cronsim reads them: `*`, values, ranges, lists, steps (`*/15`, `8-18/2`) and
names (`JAN`, `MON`; 0 and 7 are Sunday). Shorthands: `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. If both day fields are
restricted, either may match; if a day field begins with `*`, both must match (as in Vixie's cron).

When clocks change, every matching local time is due once. A skipped time is due at the first instant after the gap, together with other
times that are due then; a repeated time is due the first time. So `30 2 * * *` is due every day, and `*/15 * * * *` pauses during a
repeated hour. cronsim's own rules differ, so it searches local times without a zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", 59, "0-59"),
    ("hour", 23, "0-23"),
    ("day of month", 30, "1-31"),
    ("month", 11, "1-12 or JAN-DEC"),
    ("day of week", 7, "0-7 or SUN-SAT"),
)
"""Name, largest step and values of each field."""
_VALUE = "(?:[0-9]{1,3}|[A-Z]{3})"
_PART = rf"(?!({_VALUE})-\1/)(?:(?:\*|{_VALUE}-{_VALUE})(?:/[0-9]{{1,3}})?|{_VALUE})"
_MAX_TEXT = 200


@dataclass(frozen=True)
class Cron:
    """Schedule with at least one due time; created by `parse`."""

    text: str
    fields: str
    """The five fields in capitals, without a shorthand."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Parses a schedule. The ValueError names the wrong field and the expected values."""
        fields = _split(text)
        schedule = cls(" ".join(text.split()), " ".join(fields))
        valid = _is_valid(fields)
        for place, (field, (name, largest_step, values)) in enumerate(zip(fields, _FIELDS, strict=True)):
            if any(not 1 <= int(step) <= largest_step for step in re.findall("/([0-9]+)", field)):
                raise ValueError(f"{name}: expected a step of 1 to {largest_step}, got {field!r}")
            alone = ["*"] * place + [field] + ["*"] * (4 - place)
            if not all(re.fullmatch(_PART, part) for part in field.split(",")) or not (valid or _is_valid(alone)):
                raise ValueError(f"{name}: expected *, or values, rising ranges and their steps, of {values}, got {field!r}")
        if not valid:
            raise ValueError(f"'{schedule.text}' is never due: there is no day {fields[2]} in month {fields[3]}")
        return schedule

    def next_after(self, instant: datetime, zone: ZoneInfo) -> datetime:
        """Returns the first due time later than the instant, in UTC."""
        walls = CronSim(self.fields, instant.astimezone(zone).replace(tzinfo=None))
        return next(due for wall in walls if (due := _instant(wall, zone)) > instant)

    def last_until(self, after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
        """Returns the last due time in (after, until], in UTC. Searches backwards, so the number of due times between does not matter."""
        local = until.astimezone(zone)
        repeated = until - local.replace(fold=0).astimezone(UTC)  # while clocks repeat, later local times have been due already
        walls = CronSim(self.fields, local.replace(tzinfo=None) + repeated + timedelta(seconds=1), reverse=True)
        last = next(due for wall in walls if (due := _instant(wall, zone)) <= until)
        return last if last > after else None


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


def _is_valid(fields: list[str]) -> bool:
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True


def _split(text: str) -> list[str]:
    if len(text) > _MAX_TEXT:
        raise ValueError(f"expected a schedule of at most {_MAX_TEXT} characters, got {len(text)}")
    expression = text.strip()
    if expression.startswith("@"):
        if expression.lower() not in _SHORTHANDS:
            raise ValueError(f"unknown schedule {expression!r}; known: {', '.join(_SHORTHANDS)}")
        expression = _SHORTHANDS[expression.lower()]
    fields = expression.upper().split()
    if len(fields) != len(_FIELDS):
        wanted = "minute, hour, day of month, month, day of week"
        raise ValueError(f"expected five fields ({wanted}) such as '0 3 * * *', got {len(fields)} in {text.strip()!r}")
    return [*fields[:4], fields[4].replace("-SUN", "-7")]
