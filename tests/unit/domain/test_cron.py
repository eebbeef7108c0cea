"""Schedules: what is read, what is refused, and when each is due, held against a scan of every minute."""

from __future__ import annotations

import functools
import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.domain.cron import Cron, zone

BERLIN, NEW_YORK, LORD_HOWE, KATHMANDU = (
    ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
)
ZONES = (BERLIN, NEW_YORK, LORD_HOWE, KATHMANDU, ZoneInfo("UTC"))
MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(cron: str, since: str, count: int, zone: ZoneInfo) -> list[str]:
    """The next due times after an instant, as the wall clock shows them."""
    found, instant = [], at(since)
    for _ in range(count):
        instant = Cron.parse(cron).next_after(instant, zone)
        found.append(instant.astimezone(zone).strftime("%m-%d %H:%M"))
    return found


# What is read


NEXT_TIMES = [
    ("*/15 * * * *", ["01-01 00:15", "01-01 00:30", "01-01 00:45", "01-01 01:00"]),
    ("5-20/5,50 * * * *", ["01-01 00:05", "01-01 00:10", "01-01 00:15", "01-01 00:20", "01-01 00:50", "01-01 01:05"]),
    ("0 8-18/2 * * *", ["01-01 08:00", "01-01 10:00", "01-01 12:00", "01-01 14:00", "01-01 16:00", "01-01 18:00", "01-02 08:00"]),
    ("0 0 1 jan,Jul-SEP *", ["07-01 00:00", "08-01 00:00", "09-01 00:00", "01-01 00:00"]),
    ("0 0 * * MON-FRI", ["01-02 00:00", "01-05 00:00"]),
    ("0 0 * * 7", ["01-04 00:00", "01-11 00:00"]),
    ("0 0 * * SAT-SUN", ["01-03 00:00", "01-04 00:00", "01-10 00:00"]),
    ("0 0 * * 5-7", ["01-02 00:00", "01-03 00:00", "01-04 00:00", "01-09 00:00"]),
    ("0 0 * * */2", ["01-03 00:00", "01-04 00:00", "01-06 00:00", "01-08 00:00"]),
    ("@hourly", ["01-01 01:00", "01-01 02:00"]),
    ("@Weekly", ["01-04 00:00", "01-11 00:00"]),
    ("  0   3 * * *  ", ["01-01 03:00", "01-02 03:00"]),
]


@pytest.mark.requirement("C-03")
def test_fields_are_read(subtests: pytest.Subtests) -> None:
    for text, expected in NEXT_TIMES:
        with subtests.test(text=text):
            assert due(text, "2026-01-01T00:00", len(expected), ZoneInfo("UTC")) == expected


INVALID_SCHEDULES: list[tuple[str, str]] = [
    ("", "expected five fields .* got 0"),
    ("0 3 * *", "got 4"),
    ("0 0 3 * * *", "got 6"),
    ("60 * * * *", "minute: expected .* of 0-59, got '60'"),
    ("0 24 * * *", "hour: expected .* of 0-23, got '24'"),
    ("0 0 0 * *", "day of month: expected .* of 1-31, got '0'"),
    ("0 0 * 13 *", "month: expected .* of 1-12 or JAN-DEC, got '13'"),
    ("0 0 * MON *", "month: expected .* of 1-12 or JAN-DEC, got 'MON'"),
    ("0 0 * * 8", "day of week: expected .* of 0-7 or SUN-SAT, got '8'"),
    ("0 22-4 * * *", "hour: expected .* rising ranges .*, got '22-4'"),
    ("*/0 * * * *", "minute: expected a step of 1 to 59"),
    ("*/90 * * * *", "minute: expected a step of 1 to 59"),
    ("*/x * * * *", "minute: expected .* got"),
    ("5/10 * * * *", "minute: expected .* rising ranges and their steps"),
    ("5-5/10 * * * *", "minute: expected .* rising ranges"),
    ("*-5 * * * *", "minute: expected"),
    ("1,,2 * * * *", "minute: expected .* got '1,,2'"),
    ("-5 * * * *", "minute: expected"),
    ("1.5 * * * *", "minute: expected"),
    ("\u0665 * * * *", "minute: expected"),
    ("0 0 L * *", "day of month: expected .* of 1-31, got 'L'"),
    ("0 0 * * MON#5", "day of week: expected"),
    ("0 0 ? * *", "day of month: expected"),
    ("@reboot", "unknown schedule '@reboot'; known: @hourly"),
    ("0 0 30 2 *", "never due: there is no day 30 in month 2"),
    ("0 0 31 4,6,9,11 *", "never due: there is no day 31 in month 4,6,9,11"),
    ("0 0 30 2 */2", "never due"),
    ("0," * 120, "at most 200 characters"),
]


def test_what_is_wrong_is_named_with_what_was_expected(subtests: pytest.Subtests) -> None:
    for text, said in INVALID_SCHEDULES:
        with subtests.test(text=text, said=said), pytest.raises(ValueError, match=said):
            Cron.parse(text)


def test_only_zones_of_the_database_are_zones(subtests: pytest.Subtests) -> None:
    for name in ["", "Berlin", "europe/berlin", "../etc/passwd", "/etc/localtime", "Europe", "UTC\0", "x" * 5000]:
        with subtests.test(name=name), pytest.raises(ValueError, match="expected a time zone such as"):
            zone(name)


# When it is due


def test_either_day_is_enough_where_both_are_restricted() -> None:
    assert due("0 0 13 * FRI", "2026-03-01T00:00", 4, ZoneInfo("UTC")) == ["03-06 00:00", "03-13 00:00", "03-20 00:00", "03-27 00:00"]
    assert due("0 0 10,11 * FRI", "2026-03-07T00:00", 3, ZoneInfo("UTC")) == ["03-10 00:00", "03-11 00:00", "03-13 00:00"]


def test_both_days_are_needed_where_one_begins_with_a_star() -> None:
    assert due("0 0 */2 * MON", "2026-03-01T00:00", 2, ZoneInfo("UTC")) == ["03-09 00:00", "03-23 00:00"]


def test_the_29th_of_february_comes_in_leap_years() -> None:
    assert Cron.parse("0 0 29 2 *").next_after(at("2096-03-01T00:00"), ZoneInfo("UTC")) == at("2104-02-29T00:00")
    assert Cron.parse("0 0 29 2 */7").next_after(at("2026-01-01T00:00"), ZoneInfo("UTC")) == at("2032-02-29T00:00")


@pytest.mark.requirement("C-03")
def test_a_time_that_clocks_skip_is_due_once_right_after_the_gap() -> None:
    assert due("30 2 * * *", "2026-03-28T12:00", 2, BERLIN) == ["03-29 03:00", "03-30 02:30"]
    assert due("30 2 * * *", "2026-03-07T12:00", 2, NEW_YORK) == ["03-08 03:00", "03-09 02:30"]
    assert due("15 2 * * *", "2026-10-03T12:00", 2, LORD_HOWE) == ["10-04 02:30", "10-05 02:15"]
    assert Cron.parse("10,20,50 2 * * *").next_after(at("2026-03-29T01:00"), BERLIN) == at("2026-03-30T00:10"), "one for the whole gap"


@pytest.mark.requirement("C-03")
def test_a_time_that_clocks_repeat_is_due_the_first_time_only() -> None:
    cron = Cron.parse("30 2 * * *")
    assert cron.next_after(at("2026-10-24T12:00"), BERLIN) == at("2026-10-25T00:30")
    assert cron.next_after(at("2026-10-25T00:30"), BERLIN) == at("2026-10-26T01:30")
    assert due("30 1 * * *", "2026-10-31T12:00", 2, NEW_YORK) == ["11-01 01:30", "11-02 01:30"]
    assert due("45 1 * * *", "2026-04-04T12:00", 2, LORD_HOWE) == ["04-05 01:45", "04-06 01:45"]


def test_steps_go_by_the_wall_clock() -> None:
    assert due("*/30 * * * *", "2026-03-29T00:00", 4, BERLIN) == ["03-29 01:30", "03-29 03:00", "03-29 03:30", "03-29 04:00"]
    assert due("*/30 * * * *", "2026-10-24T23:45", 4, BERLIN) == ["10-25 02:00", "10-25 02:30", "10-25 03:00", "10-25 03:30"]
    assert due("*/20 * * * *", "2026-10-03T15:00", 4, LORD_HOWE) == ["10-04 01:40", "10-04 02:30", "10-04 02:40", "10-04 03:00"]


def test_offsets_of_a_part_of_an_hour() -> None:
    assert Cron.parse("0 6 * * *").next_after(at("2026-01-01T00:00"), KATHMANDU) == at("2026-01-01T00:15")
    assert Cron.parse("0 0 1 1 *").next_after(at("1985-12-31T00:00"), KATHMANDU) == at("1985-12-31T18:30"), "15 minutes were skipped then"


def test_a_day_that_was_skipped_whole() -> None:
    apia = ZoneInfo("Pacific/Apia")
    assert Cron.parse("0 12 30 12 *").next_after(at("2011-12-29T12:00"), apia).astimezone(apia).isoformat() == "2011-12-31T00:00:00+14:00"


def test_the_last_due_time_of_many_is_found() -> None:
    for text in ("* * * * *", "0 3 * * *", "*/7 3 * * MON", "0 0 1 1 *"):
        cron = Cron.parse(text)
        until = at("2026-08-01T10:30:20")
        found = cron.last_until(at("2020-01-01T00:00"), until, BERLIN)
        assert found is not None
        assert found <= until < cron.next_after(found, BERLIN)
        assert cron.last_until(found, until, BERLIN) is None


# Against a scan


def field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    several = st.tuples(value, value).map(lambda two: f"{min(two)}-{max(two)}")
    stepped = st.tuples(st.integers(low, high - 1), st.integers(1, high - low)).map(lambda two: f"{two[0]}-{high}/{two[1]}")
    part = value.map(str) | several | stepped
    star = st.just("*") | st.integers(1, min(7, high - low)).map(lambda step: f"*/{step}")
    return star | st.lists(part, min_size=1, max_size=3).map(",".join)


crons = st.tuples(field(0, 59), field(0, 23), st.just("*") | field(1, 28), st.just("*"), st.just("*") | field(0, 7)).map(" ".join)
CHANGES = [
    (BERLIN, "2026-03-29T01:00"),
    (BERLIN, "2026-10-25T01:00"),
    (NEW_YORK, "2026-03-08T07:00"),
    (NEW_YORK, "2026-11-01T06:00"),
    (LORD_HOWE, "2026-10-03T15:30"),
    (LORD_HOWE, "2026-04-04T15:00"),
    (KATHMANDU, "1985-12-31T18:30"),
    (ZoneInfo("UTC"), "2026-03-01T00:00"),
]


def values(text: str, low: int, high: int) -> set[int]:
    """The numbers of a field as `field` draws it: stars, numbers, ranges and steps, without names."""
    numbers: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        numbers.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return numbers


def matches(cron: str, wall: datetime) -> bool:
    minutes, hours, days, months, weekdays = cron.split()
    if wall.minute not in values(minutes, 0, 59):
        return False
    day = wall.day in values(days, 1, 31)
    weekday = wall.isoweekday() % 7 in {number % 7 for number in values(weekdays, 0, 6)}
    either = (day and weekday) if "*" in (days[0], weekdays[0]) else (day or weekday)
    return wall.hour in values(hours, 0, 23) and wall.month in values(months, 1, 12) and either


Passed = tuple[datetime, list[datetime]]


@functools.cache
def minutes_around(moment: str, zone: ZoneInfo) -> list[Passed]:
    """Every minute of some days, with the times that the wall clock shows, or skips, for the first time in it."""
    found: list[Passed] = []
    instant = at(moment) - timedelta(days=3)
    latest = instant.astimezone(zone).replace(tzinfo=None)
    for _ in range(6 * 24 * 60):
        instant += MINUTE
        wall = instant.astimezone(zone).replace(tzinfo=None)
        passed = []
        while latest < wall:
            latest += MINUTE
            passed.append(latest)
        found.append((instant, passed))
    return found


def scanned(cron: str, since: datetime, until: datetime, minutes: list[Passed]) -> list[datetime]:
    """Walks through every minute: due is one whose wall clock matches, seen for the first time, or that follows skipped ones that do."""
    first = int((since - minutes[0][0]) / MINUTE)
    last = int((until - minutes[0][0]) / MINUTE)
    assert 0 <= first < last < len(minutes)
    return [instant for instant, passed in minutes[first : last + 1] if instant > since and any(matches(cron, one) for one in passed)]


@pytest.mark.requirement("C-03")
@settings(max_examples=150, deadline=None)
@given(crons, st.sampled_from(CHANGES), st.integers(-1500, 1500), st.integers(0, 59))
@example("*/15 2 * * *", CHANGES[0], -90, 0)
@example("59 1 * * 0", CHANGES[5], -90, 30)
def test_due_times_around_a_change_of_clocks_are_those_of_a_scan(
    text: str, change: tuple[ZoneInfo, str], minutes: int, seconds: int
) -> None:
    zone, moment = change
    cron = Cron.parse(text)
    since = at(moment) + timedelta(minutes=minutes, seconds=seconds)
    expected = scanned(text, since.replace(second=0), since.replace(second=0) + timedelta(days=1), minutes_around(moment, zone))
    expected = [one for one in expected if one > since]
    every = max(1, len(expected) // 100)
    for number, (earlier, later) in enumerate(itertools.pairwise([since, *expected])):
        if number % every == 0 or abs(later - at(moment)) <= timedelta(minutes=90):  # all around the change, else a hundred of a day
            assert cron.next_after(earlier, zone) == later
    assert cron.next_after(max([since, *expected]), zone) > since.replace(second=0) + timedelta(days=1)


@settings(max_examples=60, deadline=None)
@given(crons, st.sampled_from(ZONES), st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)), st.integers(1, 3000))
def test_the_last_due_time_until_an_instant_is_the_last_of_all(text: str, zone: ZoneInfo, after: datetime, minutes: int) -> None:
    cron = Cron.parse(text)
    since = after.replace(tzinfo=UTC)
    until = since + timedelta(minutes=minutes)
    instant, last = since, None
    while (instant := cron.next_after(instant, zone)) <= until:
        last = instant
    assert cron.last_until(since, until, zone) == last


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30) | st.text("0123456789*/,- @AMON", max_size=20))
def test_any_text_is_a_schedule_or_a_readable_error(text: str) -> None:
    try:
        cron = Cron.parse(text)
    except ValueError as error:
        assert str(error)
    else:
        assert Cron.parse(cron.text) == cron
