"""Detector of a fall of a recommender's hit rate, compared with the same hours of earlier days or weeks.

A hit rate depends on the hour and the weekday, so a night or a weekend is not a fall. Time is divided into blocks of equal length. Each
look tests several possible beginnings of a fall: it compares the answers since the beginning with those of the same hours in earlier
seasons. A season is a day or a week. For falls that began more than a week ago, it compares whole weeks: the newest one, two and four weeks
with four weeks before them, with the four weeks before these, and so on. So it also detects a slow decay.

Each comparison is exact evidence (`shared.domain.evidence`) on two samples that have the same hours. The sum over all beginnings is an
e-detector as in `shared.domain.drift.hit_rate_detector`; the comparisons of whole weeks have half of the bets.

Days differ by more than the sampling error of their answers. So the evidence is against a fall of at most half the threshold, not against
no fall.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from typing import Literal

from shared.domain.drift.detectors import LOOKS
from shared.domain.drift.hit_rate_detector import Comparisons
from shared.domain.drift.reading import DriftLook
from shared.domain.sequential_test import Goal, VariantSample

Season = Literal["auto", "week", "day", "none"]
DAY, WEEK = timedelta(days=1), timedelta(days=7)
DAYS_BACK, WEEKS_BACK = 7, 4
"""Number of earlier days, or weeks, with which the same hours are compared."""
WHOLE_WEEKS = (1, 2, 4)
"""Numbers of newest weeks that are compared as a whole."""
OLDER = 3
"""Number of earlier groups of four weeks that they are compared with."""
KEPT_WEEKS = max(WHOLE_WEEKS) + 4 * OLDER
"""Weeks of answers that are needed; older answers are not read."""
_TOLERATED = 0.5
"""A fall of up to this share of the threshold is not evidence, because days differ by as much for unknown reasons."""
_MOST_A_DAY = 24 * 60
"""Maximum number of blocks a day; five weeks of blocks are kept for each recommender."""
_NAMES = ("users", "total", "squares", "answers", "hits", "converted")


class BlockSeries:
    """Outcomes of answers in consecutive blocks of equal length. Uses prefix sums, so the sum of a range needs no loop."""

    def __init__(self, samples: Iterable[VariantSample] = ()) -> None:
        self._sums = tuple(array("d", [0.0]) for _ in _NAMES)
        for sample in samples:
            self.add(sample)

    def __len__(self) -> int:
        return len(self._sums[0]) - 1

    def add(self, sample: VariantSample) -> None:
        for sums, name in zip(self._sums, _NAMES, strict=True):
            sums.append(sums[-1] + getattr(sample, name))

    def forget(self, blocks: int) -> None:
        """Removes the first blocks."""
        for sums in self._sums:
            del sums[:blocks]

    def of(self, start: int, end: int) -> VariantSample:
        users, total, squares, answers, hits, converted = (sums[end] - sums[start] for sums in self._sums)
        return VariantSample(round(users), total, squares, round(answers), round(hits), round(converted))


@dataclass(frozen=True)
class AnswerHistory:
    """Answers of a recommender up to now, of all its versions."""

    until: datetime
    every: timedelta
    """Length of a block; divides a day into a whole number of blocks."""
    blocks: BlockSeries
    """Blocks of five weeks at most; the last block ends at `until`."""
    days: BlockSeries = field(default_factory=BlockSeries)
    """Days, at most KEPT_WEEKS; the last day ends before `until`, by less than a day."""


def block_length(window: timedelta) -> timedelta:
    """Returns about a quarter of the window, at least a minute, so that a day has a whole number of blocks of whole seconds."""
    wanted = min(max(math.ceil(DAY / (window / LOOKS)), 1), _MOST_A_DAY)
    number = next(number for number in range(wanted, 86_400 + 1) if 86_400 % number == 0)
    return DAY / number


def seasons_back(season: Season, passed: timedelta) -> timedelta:
    """Returns the distance from now to the same hours of the first season, if `passed` is the time since its begin."""
    length = WEEK if season == "week" or (season == "auto" and passed >= WEEK) else DAY
    return passed // length * length


def waits_for(season: Season, passed: timedelta) -> str:
    """Returns what the detector waits for; empty if there is a season to compare with."""
    length, name = (WEEK, "week") if season == "week" else (DAY, "day")
    if passed >= length:
        return ""
    return _waits(name, length, passed)


def seasonal_fall(
    version: int, history: AnswerHistory, season: Season, fewest: int, threshold: float, goal: Goal = "hit_rate"
) -> DriftLook:
    """Returns the newest look, with a note if data is missing. `threshold`: the fall from which the reading counts."""
    in_a_day = DAY // history.every
    if season == "day" or (season == "auto" and len(history.blocks) <= 7 * in_a_day):
        length, back, name, unit = in_a_day, DAYS_BACK, "day", DAY
    else:
        length, back, name, unit = 7 * in_a_day, WEEKS_BACK, "week", WEEK
    if len(history.blocks) <= length:
        return DriftLook(version, history.until, (), _waits(name, unit, len(history.blocks) * history.every))
    comparisons = Comparisons(fewest, goal, 1 - threshold * _TOLERATED)
    weeks = name == "week" and len(history.days) >= 14
    _compare_hours(comparisons, history.blocks, length, back, 0.5 if weeks else 1.0, f"the same hours of earlier {name}s")
    if weeks:
        _compare_weeks(comparisons, history.days)
    reading = comparisons.reading()
    return DriftLook(version, history.until, () if reading is None else (reading,))


def _compare_hours(comparisons: Comparisons, blocks: BlockSeries, season: int, back: int, share: float, against: str) -> None:
    """Compares, for each beginning within the newest season, the blocks since then with the same blocks of earlier seasons."""
    end = len(blocks)
    for length in _lengths(season):
        begin = end - length
        earlier = [blocks.of(start, start + length) for start in range(begin - season, -1, -season)[:back]]
        if earlier:
            comparisons.add(reduce(VariantSample.plus, earlier), blocks.of(begin, end), 1 / (1 + len(earlier)), share, against)


def _compare_weeks(comparisons: Comparisons, days: BlockSeries) -> None:
    end = len(days)
    for weeks in WHOLE_WEEKS:
        begin = end - 7 * weeks
        for group in range(OLDER):
            last = begin - 28 * group
            first = last - 7 * min(4, last // 7)
            if first < last:
                number = (last - first) // 7
                against = f"the {_counted(number)} before the newest {weeks + 4 * group}"
                comparisons.add(days.of(first, last), days.of(begin, end), weeks / (weeks + number), 0.5 / OLDER, against)


def _counted(weeks: int) -> str:
    return f"{weeks} week{'s' if weeks > 1 else ''}"


def _lengths(season: int) -> Iterator[int]:
    """Yields 1, 2, 3, 4, 6, 8, 12 and so on, up to a season."""
    power = 1
    while power <= season:
        yield power
        if power > 1 and power * 3 // 2 <= season:
            yield power * 3 // 2
        power *= 2


def _waits(name: str, length: timedelta, there: timedelta) -> str:
    return f"waits for a full {name} to compare with: {_spoken(there)} of {_spoken(length)} have passed"


def _spoken(span: timedelta) -> str:
    hours = span // timedelta(hours=1)
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"
