"""A hit rate that follows the day and the week: what is a fall, what is not, and what is too early to say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain.drift.hit_rate_detector import Block, fall
from shared.domain.drift.reading import DriftLook, DriftReading
from shared.domain.drift.seasons import KEPT_WEEKS, WEEKS_BACK, AnswerHistory, BlockSeries, Season, block_length, seasonal_fall
from shared.domain.sequential_test import VariantSample

pytestmark = pytest.mark.requirement("G-13")

HOUR = timedelta(hours=1)
START = datetime(2026, 1, 5, tzinfo=UTC)
USERS = 2_000
Rate = Callable[[int], float]
"""Of an hour, counted from a Monday's first."""


def night(hour: int) -> float:
    return 0.15 if hour % 24 < 6 else 0.2


def weekend(hour: int) -> float:
    return night(hour) * (0.8 if hour // 24 % 7 >= 5 else 1.0)


def sample(rate: float, users: int = USERS) -> VariantSample:
    hits = round(rate * users)
    return VariantSample(users, float(hits), float(hits), users, hits, hits)


def look(rate: Rate, hours: int, season: Season = "auto", users: int = USERS, fewest: int = 500) -> DriftLook:
    """After so many hours, with what would be kept of them."""
    samples = [sample(rate(hour), users) for hour in range(hours)]
    days = BlockSeries()
    for day in range(hours // 24):
        day_series = BlockSeries(samples[day * 24 : day * 24 + 24])
        days.add(day_series.of(0, 24))
    days.forget(max(len(days) - 7 * KEPT_WEEKS, 0))
    blocks = BlockSeries(samples[-(WEEKS_BACK + 1) * 168 :])
    return seasonal_fall(3, AnswerHistory(START + hours * HOUR, HOUR, blocks, days), season, fewest, 0.1)


def reading(rate: Rate, hours: int, season: Season = "auto", users: int = USERS) -> DriftReading:
    (found,) = look(rate, hours, season, users).readings
    return found


def alarms(rate: Rate, hours: range, season: Season = "auto") -> list[int]:
    found = {hour: look(rate, hour, season).readings for hour in hours}
    return [hour for hour, readings in found.items() if readings and readings[0].exceeds(0.1)]


def test_a_fall_counts_when_it_is_surely_more_than_half_of_the_threshold() -> None:
    """A day that is a few percent worse for a reason of its own is none: eight hours at -11% may be such a day, and a whole one is not."""

    def fallen(hour: int) -> float:
        return 0.2 if hour < WEEKS_BACK * 168 else 0.2 * 0.89

    for hours, counts in ((8, False), (24, True)):
        newest = reading(fallen, WEEKS_BACK * 168 + hours)
        assert newest.size == pytest.approx(0.11)
        assert newest.exceeds(0.1) is counts


def test_a_night_is_no_fall_where_days_are_compared() -> None:
    assert alarms(night, range(25, 200)) == []
    blocks = [Block(START + (hour + 1) * HOUR, sample(night(hour))) for hour in range(30)]
    without = fall(3, VariantSample(), blocks, 500)
    assert without is not None and without.readings[0].exceeds(0.1), "all hours together take it for one"


def test_a_weekend_is_no_fall_once_there_is_a_week_to_compare_with() -> None:
    assert alarms(weekend, range(8 * 24, 5 * 168, 7)) == []
    assert alarms(weekend, range(8 * 24, 5 * 168, 7), "week") == []
    first = alarms(weekend, range(25, 8 * 24))
    assert first and min(first) > 5 * 24, "in the first week Saturday is compared with Friday"
    assert alarms(weekend, range(25, 8 * 24), "week") == []
    assert alarms(weekend, range(8 * 24, 4 * 168, 7), "day") != [], "days alone never learn it"


@pytest.mark.parametrize(("loss", "hours"), [(0.12, 24), (0.2, 6), (0.5, 2)])
def test_a_real_fall_is_found_at_any_hour(loss: float, hours: int) -> None:
    for start in (3 * 168, 3 * 168 + 3, 3 * 168 + 5 * 24 + 12):
        found = reading(lambda hour, start=start: weekend(hour) * (1 - loss if hour >= start else 1), start + hours)
        assert found.exceeds(0.1), (loss, start)
        assert found.size == pytest.approx(loss, abs=0.03)


def test_it_says_what_was_compared() -> None:
    found = reading(lambda hour: weekend(hour) * (0.5 if hour >= 3 * 168 else 1), 3 * 168 + 4)
    assert found.sentence().startswith(
        "hit rate fell by 50.0% (hit rate, compared with the same hours of earlier weeks, from 15.0% to 7.5%); by chance alone"
    )
    assert found.users == (4 * 3 * USERS, 4 * USERS), "the same four hours of three weeks"


def test_a_slow_decay_is_found_in_whole_weeks() -> None:
    def decay(hour: int) -> float:
        return weekend(hour) * 0.99 ** (hour // 168)

    weeks = [week for week in range(2, 16) if reading(decay, week * 168).exceeds(0.1)]
    assert 11 <= weeks[0] <= 14, "it has lost 10% after eleven weeks"
    assert weeks == list(range(weeks[0], 16)), "as long as it goes on"
    assert reading(decay, 15 * 168).moved[0].value == "hit rate, compared with the 3 weeks before the newest 12,"


@pytest.mark.parametrize(
    ("season", "hours", "note"),
    [
        ("auto", 7, "waits for a full day to compare with: 7 h of 24 h have passed"),
        ("day", 24, "waits for a full day to compare with: 24 h of 24 h have passed"),
        ("week", 100, "waits for a full week to compare with: 4 days of 7 days have passed"),
        ("auto", 25, ""),
        ("week", 169, ""),
    ],
)
def test_it_waits_for_a_season_to_compare_with_and_says_so(season: Season, hours: int, note: str) -> None:
    found = look(night, hours, season)
    assert (found.note, bool(found.readings)) == (note, not note)
    assert (found.version, found.at) == (3, START + hours * HOUR)


def test_few_answers_say_nothing_until_they_are_enough() -> None:
    assert look(night, 26, users=10).readings == ()
    assert reading(night, 26, users=250).size == 0
    assert look(night, 26, users=249, fewest=500).readings == ()


@pytest.mark.parametrize(
    ("window", "block"),
    [("1h", "15m"), ("50m", "12m"), ("1d", "6h"), ("7d", "1d"), ("8s", "60s"), ("2h", "30m"), ("11m", "160s")],
)
def test_a_day_has_a_whole_number_of_blocks_a_quarter_of_the_window_long_at_most(window: str, block: str) -> None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    asked, found = (timedelta(seconds=int(text[:-1]) * units[text[-1]]) for text in (window, block))
    assert block_length(asked) == found
    assert timedelta(days=1) % found == timedelta(0)


def test_a_series_adds_up_any_stretch_and_forgets_its_first_blocks() -> None:
    series = BlockSeries([sample(0.5, 10), sample(0.2, 20)])
    series.add(sample(0.1, 30))
    whole = series.of(0, 3)
    assert (len(series), whole.users, whole.total, whole.answers) == (3, 60, 12.0, 60)
    series.forget(1)
    assert (len(series), series.of(0, 1).users, series.of(0, 2).total, series.of(1, 1)) == (2, 20, 7.0, VariantSample())
