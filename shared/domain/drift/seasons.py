"""Has the hit rate of a recommender fallen, compared with the same hours of earlier days, or of earlier weeks?

A hit rate follows the day and the week, so a night is no fall, and neither is a weekend. Time is cut into blocks of equal length. Every
look asks of several beginnings whether the rate has fallen since then: the answers since the beginning are held against those of the same
hours in the seasons before. A season is a day or a week. A fall that began longer ago than a week is looked for in whole weeks: the newest
one, two and four weeks against four weeks before them, against the four weeks before these, and so on. So a slow decay is found as well.

Each comparison is exact evidence (`shared.domain.evidence`) on two samples that have the same hours. The sum over all beginnings is an
e-detector as in `shared.domain.drift.hit_rate_detector`; the comparisons of whole weeks have half of the bets.

Days differ by more than chance among their answers explains. So the evidence is against a fall of half the threshold, not against no fall.
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
from shared.domain.drift.reading import Look
from shared.domain.sequential_test import Goal, Sample

Season = Literal["auto", "week", "day", "none"]
DAY, WEEK = timedelta(days=1), timedelta(days=7)
DAYS_BACK, WEEKS_BACK = 7, 4
"""How many earlier days, or weeks, the same hours are taken from."""
WHOLE_WEEKS = (1, 2, 4)
"""How many of the newest weeks are looked at as one."""
OLDER = 3
"""Groups of four weeks that whole weeks are compared with."""
KEPT_WEEKS = max(WHOLE_WEEKS) + 4 * OLDER
"""Of older answers nothing is asked."""
_TOLERATED = 0.5
"""A fall of up to this share of the threshold is no evidence, however sure it is: days differ by as much for unknown reasons."""
_MOST_A_DAY = 24 * 60
"""Blocks: five weeks of them are kept for each recommender."""
_NAMES = ("users", "total", "squares", "answers", "hits", "converted")


class Series:
    """What answers earned, in blocks of equal length without a gap. Sums of a stretch of blocks take no loop."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._sums = tuple(array("d", [0.0]) for _ in _NAMES)
        for sample in samples:
            self.add(sample)

    def __len__(self) -> int:
        return len(self._sums[0]) - 1

    def add(self, sample: Sample) -> None:
        for sums, name in zip(self._sums, _NAMES, strict=True):
            sums.append(sums[-1] + getattr(sample, name))

    def forget(self, blocks: int) -> None:
        """The first blocks."""
        for sums in self._sums:
            del sums[:blocks]

    def of(self, start: int, end: int) -> Sample:
        users, total, squares, answers, hits, converted = (sums[end] - sums[start] for sums in self._sums)
        return Sample(round(users), total, squares, round(answers), round(hits), round(converted))


@dataclass(frozen=True)
class History:
    """A recommender's answers up to now, by whichever version it served them."""

    until: datetime
    every: timedelta
    """The length of a block; a day has a whole number of them."""
    blocks: Series
    """Of five weeks at most; the last one ends at `until`."""
    days: Series = field(default_factory=Series)
    """Of KEPT_WEEKS at most; the last one ends before `until`, by less than a day."""


def block_length(window: timedelta) -> timedelta:
    """About a quarter of the window, at least a minute, so that a day has a whole number of blocks of whole seconds."""
    wanted = min(max(math.ceil(DAY / (window / LOOKS)), 1), _MOST_A_DAY)
    number = next(number for number in range(wanted, 86_400 + 1) if 86_400 % number == 0)
    return DAY / number


def seasons_back(season: Season, passed: timedelta) -> timedelta:
    """How long before now the same hours of the first season are, if so much time has passed since its begin."""
    length = WEEK if season == "week" or (season == "auto" and passed >= WEEK) else DAY
    return passed // length * length


def waits_for(season: Season, passed: timedelta) -> str:
    """Empty if there is a season to compare with."""
    length, name = (WEEK, "week") if season == "week" else (DAY, "day")
    if passed >= length:
        return ""
    return _waits(name, length, passed)


def seasonal_fall(version: int, history: History, season: Season, fewest: int, threshold: float, goal: Goal = "hit_rate") -> Look:
    """The newest look. Without a reading it says what it waits for. `threshold`: the fall from which on the reading is to count."""
    in_a_day = DAY // history.every
    if season == "day" or (season == "auto" and len(history.blocks) <= 7 * in_a_day):
        length, back, name, unit = in_a_day, DAYS_BACK, "day", DAY
    else:
        length, back, name, unit = 7 * in_a_day, WEEKS_BACK, "week", WEEK
    if len(history.blocks) <= length:
        return Look(version, history.until, (), _waits(name, unit, len(history.blocks) * history.every))
    comparisons = Comparisons(fewest, goal, 1 - threshold * _TOLERATED)
    weeks = name == "week" and len(history.days) >= 14
    _compare_hours(comparisons, history.blocks, length, back, 0.5 if weeks else 1.0, f"the same hours of the {name}s before")
    if weeks:
        _compare_weeks(comparisons, history.days)
    reading = comparisons.reading()
    return Look(version, history.until, () if reading is None else (reading,))


def _compare_hours(comparisons: Comparisons, blocks: Series, season: int, back: int, share: float, against: str) -> None:
    """For each beginning within the newest season: everything since, and the same blocks of the seasons before."""
    end = len(blocks)
    for length in _lengths(season):
        begin = end - length
        earlier = [blocks.of(start, start + length) for start in range(begin - season, -1, -season)[:back]]
        if earlier:
            comparisons.add(reduce(Sample.plus, earlier), blocks.of(begin, end), 1 / (1 + len(earlier)), share, against)


def _compare_weeks(comparisons: Comparisons, days: Series) -> None:
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
    """1, 2, 3, 4, 6, 8, 12 and so on, up to a season."""
    power = 1
    while power <= season:
        yield power
        if power > 1 and power * 3 // 2 <= season:
            yield power * 3 // 2
        power *= 2


def _waits(name: str, length: timedelta, there: timedelta) -> str:
    return f"it waits for a full {name} to compare with: {_spoken(there)} of {_spoken(length)} have passed"


def _spoken(span: timedelta) -> str:
    hours = span // timedelta(hours=1)
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"
