"""Whether drift is found where likes and scores follow the hour and the day of the week, and how often a rhythm is taken for drift: by
simulation through the code that looks at them.

    python -m benchmarks.rhythms_drift [--windows 500] [--runs 20] [--workers 2]

A window is 1,000 likes, which take about two and a half hours. In the evening a share of the likes (`swing`) goes to one genre, and more
people like things; at weekends this share is higher by 15 points, so everybody likes and is shown something else. Scores follow the same
hours. A version serves three weeks, and its first week is counted apart, because `season: auto` compares with the first day then. `psi` and
the scores count from 0.2, new and missing values from 0.05, three looks in a row.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.drift import PATIENCE, THRESHOLDS, WINDOW
from benchmarks.drift_worlds import SHIFTS, STABLE, Event, Planted, Shift, changed, columns
from benchmarks.report import Row, publish
from services.monitor.drift import DriftLooks, MeasuredVersion
from shared.contracts.retraining import DriftTrigger
from shared.domain.drift.alarm_decision import NOTHING_YET, remember
from shared.domain.drift.detectors import LOOKS
from shared.domain.drift.reading import DriftColumn
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
    """What has been liked and shown up to a moment; stands in for the event log and the catalogue."""

    def __init__(self, events: Sequence[Event], times: Sequence[datetime]) -> None:
        self.seen, self.times = 0, times
        self._events = events
        self._likes = [Like(event.user, number, at) for number, (event, at) in enumerate(zip(events, times, strict=True))]
        self._scores = [AnswerScore(event.user, event.score, at) for event, at in zip(events, times, strict=True)]

    def likes(self, recommender: str, since: datetime, count: int, newest: bool) -> Sequence[Like]:
        return self._part(self._likes, since, count, newest)

    def scores(self, recommender: str, version: int, since: datetime, count: int, newest: bool) -> Sequence[AnswerScore]:
        return self._part(self._scores, since, count, newest)

    def _part(self, whole: list[Any], since: datetime, count: int, newest: bool) -> list[Any]:
        first = bisect_left(self.times, since, hi=self.seen)
        return whole[max(first, self.seen - count) : self.seen][::-1] if newest else whole[first : min(first + count, self.seen)]

    def of(self, recommender: str, version: int) -> Any:
        return SimpleNamespace(columns=self._columns)

    def _columns(self, first: Sequence[Like], now: Sequence[Like]) -> list[DriftColumn]:
        measured = columns([self._events[like.item] for like in first], [self._events[like.item] for like in now])
        return [column for column in measured if column.kind != "scores"]


def lived(rhythm: Rhythm, seed: int, shift: Shift, shift_day: float) -> Likes:
    world, random = Planted(seed), np.random.default_rng((seed, 31))
    quarters = np.arange(DAYS * 96) / 96
    wave, weekend = _wave(quarters), quarters % WEEK >= 5
    people = rhythm.likes / 96 * (1 + 0.6 * wave) * np.where(weekend & rhythm.weekend, 1.2, 1.0)
    counts = random.poisson(people * np.where(quarters >= WEEK, rhythm.grown, 1.0))
    days = np.sort(np.repeat(quarters, counts) + random.random(counts.sum()) / 96)
    evening = rhythm.swing * (1 + _wave(days)) / 2 + WEEKEND * (rhythm.weekend & (days % WEEK >= 5))
    before = int(np.searchsorted(days, shift_day))
    events = [*world.events(before), *world.events(len(days) - before, shift)]
    of_hour = [changed(event, Shift("", genre=share, score=share), random) for event, share in zip(events, evening.tolist(), strict=True)]
    return Likes(of_hour, [START + timedelta(days=day) for day in days.tolist()])


def _wave(days: Any) -> Any:
    """Over the day, from -1 to 1; the highest in the evening."""
    return np.cos(2 * np.pi * (days - 20 / 24))


def alarms(world: Likes, season: Season, begin: int = STEP) -> tuple[list[tuple[float, str]], int, int]:
    """The days at which the trigger begins to fire, and for what; how many looks there were in the first week, and later. The first look is
    taken after `begin` likes."""
    looks, rule = DriftLooks(world, world), DriftTrigger(season=season, min_events=WINDOW)  # type: ignore[arg-type]
    memory, standing, starts, counted, last = NOTHING_YET, set[str](), list[tuple[float, str]](), [0, 0], None
    for world_size in range(begin, len(world.times) + 1, STEP):
        world.seen = world_size
        look = looks.newest(SERVED, rule)
        if look is None or look.at == last or not look.readings:
            continue
        last, day = look.at, (look.at - START) / timedelta(days=1)
        counted[day > FIRST_WEEK] += 1
        memory = remember(memory, look, THRESHOLDS, rule.looks)
        before, standing = standing, {alarm.reading.key for alarm in memory.moved}
        starts += [(day, key) for key in standing - before]
    return starts, counted[0], counted[1]


def stable(rhythm: Rhythm, season: Season, seed: int) -> tuple[int, int, int, int]:
    """False alarms of the first week and of the later ones, and how many looks there were in each. The first week is seen in two lives."""
    world = lived(rhythm, seed, STABLE, math.inf)
    begin = STEP if seed < FIRST_WEEKS else bisect_left(world.times, START + timedelta(days=FIRST_WEEK))
    starts, first, later = alarms(world, season, begin)
    late = sum(day > FIRST_WEEK for day, _ in starts)
    return len(starts) - late, late, first, later


def shifted(rhythm: Rhythm, shift: Shift, seed: int) -> float:
    """Windows from the shift to the alarm."""
    day = 10 + WEEK * float(np.random.default_rng((seed, 37)).random())
    world = lived(rhythm, seed, shift, day)
    first = bisect_left(world.times, START + timedelta(days=day))
    world.times = world.times[: first + PATIENCE * WINDOW]
    starts, _, _ = alarms(world, "auto", first - WINDOW)
    alarm = next((start for start, _ in starts if start > day), math.inf)
    return math.inf if math.isinf(alarm) else (bisect_right(world.times, START + timedelta(days=alarm)) - first) / WINDOW


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=500, help="stable windows of each world, those of the first week not counted")
    parser.add_argument("--runs", type=int, default=20, help="of each shift")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    rows: list[Row] = []
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        watched: list[tuple[Rhythm, Season]] = [(rhythm, "auto") for rhythm in (*RHYTHMS, *GROWING)]
        for rhythm, season in [*watched, (RHYTHMS[3], "none"), (RHYTHMS[7], "none")]:
            lives = math.ceil(options.windows * WINDOW / (rhythm.likes * rhythm.grown * (DAYS - FIRST_WEEK)))
            counts = np.array(list(pool.map(partial(stable, rhythm, season), range(lives)))).sum(axis=0).tolist()
            name = f"season: {season}"
            for which, alarms_, looks in zip(("first week", "later"), counts[:2], counts[2:], strict=True):
                windows = looks / LOOKS
                note = f"{alarms_} in {windows:,.0f} windows"
                rows.append(
                    Row(f"{rhythm.name}: {which}", name, "false alarms of 1,000 windows", "", [1000 * alarms_ / max(windows, 1)], note=note)
                )
                sys.stderr.write(f"{rhythm.name}, {which}, {name}: {note}\n")
            publish("rhythms-drift", rows)
        world = RHYTHMS[-2]
        for shift in SHIFTS:
            late = list(pool.map(partial(shifted, world, shift), range(1000, 1000 + options.runs)))
            delays = [delay for delay in late if math.isfinite(delay)]
            note = f"{len(late) - len(delays)} of {len(late)} missed"
            rows.append(Row(world.name, shift.name, "windows until it is found", "windows", delays or [math.nan], note=note))
            sys.stderr.write(f"{shift.name}: {sorted(late)}\n")
    publish("rhythms-drift", rows, windows=options.windows, runs=options.runs)


if __name__ == "__main__":
    main()
