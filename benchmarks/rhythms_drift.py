"""Whether drift is found where likes and scores follow the hour and the day of the week, and how often a rhythm is taken for drift: by
simulation through the code that looks at them.

    python -m benchmarks.rhythms_drift [--windows 500] [--runs 20] [--workers 2]

A window is 1,000 likes, which take about two and a half hours. In the evening a share of the likes (`swing`) goes to one genre, and more
people like things; at weekends this share is higher by 15 points, so everybody likes and is shown something else. Scores follow the same
hours. A version serves three weeks, and its first week is counted apart, because `season: auto` compares with the first day then. `psi` and
the scores count from 0.2, new and missing values from 0.05, three looks in a row.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np

from benchmarks.drift import PATIENCE, THRESHOLDS, WINDOW
from benchmarks.harness import Fields, Outcome, Row, benchmark
from benchmarks.populations import SHIFTS, STABLE, Event, Planted, Shift, changed, columns
from benchmarks.trials import ANY, alarm_starts, finite
from benchmarks.trials import workers as worker_pool
from services.monitor.drift import DriftLooks, MeasuredVersion
from shared.contracts.retraining import DriftTrigger
from shared.domain.drift.detectors import LOOKS
from shared.domain.drift.reading import DriftColumn, DriftLook
from shared.domain.drift.seasons import Season
from shared.ports import AnswerScore, Like

START = datetime(2026, 1, 5, tzinfo=UTC)
SERVED = MeasuredVersion("films", 1, START)
LIKES_A_DAY, DAYS, WEEK = 9_600, 21, 7
WEEKEND = 0.15
STEP = WINDOW // LOOKS
FIRST_WEEKS, FIRST_WEEK = 2, 8
"""How many first weeks are looked at; and how many days one has: the newest window has no hour of the first week then."""


@dataclass(frozen=True)
class Rhythm:
    swing: float
    weekend: bool
    grown: float = 1.0
    """How many times more likes there are after the first week."""
    likes: int = LIKES_A_DAY

    @property
    def name(self) -> str:
        grown = f", {self.likes:,} likes a day, {self.grown:g} times as many after the first week" if self.grown != 1 else ""
        return f"swing {self.swing:.0%}, weekends {f'{WEEKEND:.0%} more' if self.weekend else 'as other days'}{grown}"


RHYTHMS = [Rhythm(swing, weekend) for weekend in (False, True) for swing in (0.0, 0.15, 0.25, 0.5)]
GROWING = [Rhythm(0.5, False, grown, 2_000) for grown in (0.5, 2.0)]


class Likes:
    """Likes and scores up to the newest visible one; stands in for the event log and the catalogue."""

    def __init__(self, events: Sequence[Event], times: Sequence[datetime]) -> None:
        self.visible, self.times = 0, times
        self._events = events
        self._likes = [Like(event.user, number, at) for number, (event, at) in enumerate(zip(events, times, strict=True))]
        self._scores = [AnswerScore(event.user, event.score, at) for event, at in zip(events, times, strict=True)]

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        return self._part(self._likes, since, count, newest)

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[AnswerScore]:
        return self._part(self._scores, since, count, newest)

    def _part(self, whole: list[Any], since: datetime, count: int, newest: bool) -> list[Any]:
        first, end = self.after(since), self.visible
        return whole[max(first, end - count) : end][::-1] if newest else whole[first : min(first + count, end)]

    def after(self, moment: datetime) -> int:
        """The first like from a moment on."""
        return bisect_left(self.times, moment)

    def of(self, recommender: str, version: int) -> Any:
        return SimpleNamespace(columns=self._columns)

    def _columns(self, first: Sequence[Like], now: Sequence[Like]) -> list[DriftColumn]:
        measured = columns([self._events[like.item] for like in first], [self._events[like.item] for like in now])
        return [column for column in measured if column.kind != "scores"]


def lived(rhythm: Rhythm, seed: int, shift: Shift, shift_day: float) -> Likes:
    world, random = Planted(seed), np.random.default_rng((seed, 31))
    quarters = np.arange(DAYS * 96) / 96
    people = rhythm.likes / 96 * (1 + 0.6 * _wave(quarters)) * np.where((quarters % WEEK >= 5) & rhythm.weekend, 1.2, 1.0)
    counts = random.poisson(people * np.where(quarters >= WEEK, rhythm.grown, 1.0))
    days = np.sort(np.repeat(quarters, counts) + random.random(counts.sum()) / 96)
    evening = rhythm.swing * (1 + _wave(days)) / 2 + WEEKEND * (rhythm.weekend & (days % WEEK >= 5))
    before = int(np.searchsorted(days, shift_day))
    events = [*world.events(before), *world.events(len(days) - before, shift)]
    of_hour = [changed(event, Shift("", genre=share, score=share), random) for event, share in zip(events, evening.tolist(), strict=True)]
    return Likes(of_hour, [_moment(day) for day in days.tolist()])


def _wave(days: Any) -> Any:
    """Over the day, from -1 to 1; the highest in the evening."""
    return np.cos(2 * np.pi * (days - 20 / 24))


def _moment(day: float) -> datetime:
    return START + timedelta(days=day)


def alarms(world: Likes, season: Season, begin: int = STEP) -> tuple[list[float], list[int]]:
    """The days at which the trigger begins to fire, and how many looks there were in the first week, and later. The first look is taken
    after `begin` likes."""
    measured, rule = DriftLooks(world, world), DriftTrigger(season=season, min_events=WINDOW)  # type: ignore[arg-type]
    counts = [0, 0]

    def looks() -> Iterator[tuple[float, DriftLook]]:
        last = None
        for size in range(begin, len(world.times) + 1, STEP):
            world.visible = size
            look = measured.newest(SERVED, rule)
            if look is not None and look.at != last and look.readings:
                last, day = look.at, (look.at - START) / timedelta(days=1)
                counts[day > FIRST_WEEK] += 1
                yield day, look

    return [day for day, name in alarm_starts(looks(), THRESHOLDS, rule.looks, by="key") if name != ANY], counts


def stable(rhythm: Rhythm, season: Season, seed: int) -> tuple[int, int, int, int]:
    """False alarms of the first week and of the later ones, and their numbers of looks. Two lives have looks in the first week."""
    world = lived(rhythm, seed, STABLE, math.inf)
    starts, (first, later) = alarms(world, season, STEP if seed < FIRST_WEEKS else world.after(_moment(FIRST_WEEK)))
    late = sum(day > FIRST_WEEK for day in starts)
    return len(starts) - late, late, first, later


def shifted(rhythm: Rhythm, shift: Shift, seed: int) -> float:
    """Windows from the shift to the alarm."""
    day = 10 + WEEK * float(np.random.default_rng((seed, 37)).random())
    world = lived(rhythm, seed, shift, day)
    first = world.after(_moment(day))
    world.times = world.times[: first + PATIENCE * WINDOW]
    starts, _ = alarms(world, "auto", first - WINDOW)
    alarm = next((start for start in starts if start > day), math.inf)
    return math.inf if math.isinf(alarm) else (bisect_right(world.times, _moment(alarm)) - first) / WINDOW


@benchmark("rhythms-drift")
def rhythms_drift(
    windows: Annotated[int, "stable windows of each world, those of the first week not counted"] = 500,
    runs: Annotated[int, "of each shift"] = 20,
    workers: int = 2,
) -> Iterator[Outcome]:
    yield Fields(windows=windows, runs=runs)
    watched: list[tuple[Rhythm, Season]] = [(rhythm, "auto") for rhythm in (*RHYTHMS, *GROWING)]
    with worker_pool(workers) as pool:
        for rhythm, season in [*watched, (RHYTHMS[3], "none"), (RHYTHMS[7], "none")]:
            lives = math.ceil(windows * WINDOW / (rhythm.likes * rhythm.grown * (DAYS - FIRST_WEEK)))
            counts = [sum(values) for values in zip(*pool.map(partial(stable, rhythm, season), range(lives)), strict=True)]
            for part, false, looks in zip(("first week", "later"), counts[:2], counts[2:], strict=True):
                share, note = 1000 * false / max(looks / LOOKS, 1), f"{false} in {looks / LOOKS:,.0f} windows"
                yield Row(f"{rhythm.name}: {part}", f"season: {season}", "false alarms of 1,000 windows", "", [share], note=note)
        world = RHYTHMS[-2]
        for shift in SHIFTS:
            delays = list(pool.map(partial(shifted, world, shift), range(1000, 1000 + runs)))
            note = f"{sum(map(math.isinf, delays))} of {runs} missed"
            yield Row(world.name, shift.name, "windows until it is found", "windows", finite(delays), note=note)


if __name__ == "__main__":
    rhythms_drift()
