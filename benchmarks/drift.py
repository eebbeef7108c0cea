"""How late drift is found, and how often it is seen where there is none, for each detector and through the code that judges.

    python -m benchmarks.drift [--data FOLDER] [--windows 4000] [--runs 60]

FOLDER holds `ml-100k/`, MovieLens 100K as recbole's atomic files (ml-100k.inter, ml-100k.item); it isn't part of Eyas. Without it the
planted worlds are measured alone, and the command says what is missing and ends with 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks.harness import Missed, Outcome, Row, benchmark
from benchmarks.populations import SHIFTS, START, Earning, Event, MovieLens, Planted, Shift, changed, columns
from benchmarks.trials import ANY, alarm_starts, quantile, workers
from shared.domain.drift.detectors import DETECTORS, LOOKS, detected
from shared.domain.drift.hit_rate_detector import fall
from shared.domain.drift.reading import DriftLook
from shared.domain.retrainer import HITS_LOOKS
from shared.domain.sequential_test import VariantSample

WINDOW, MANY = 1000, 5000
"""Likes in a window: of the planted world, and of ml-100k, where a thousand likes are seventeen users."""
THRESHOLDS = {"psi": 0.2, "new": 0.05, "nulls": 0.05, "scores": 0.2}
NEEDED = 3
"""Looks above a threshold that make an alarm."""
FALLS = (Earning(0.3, 0.1), Earning(0.3, 0.2), Earning(0.3, 0.3), Earning(0.1, 0.2), Earning(0.1, 0.3))
PATIENCE = 8
"""Windows after which a shift without an alarm is missed."""
HIT_RATE = "hit_rate"
CONTENDERS = {ANY: "eyas", **{name: f"eyas: {name}" for name in (*DETECTORS, HIT_RATE)}}
FINDS = {"feature": "psi", "category": "new", "missing": "nulls", "scores": "scores", "taste": ANY}


@dataclass
class Alarms:
    """By detector: places of the looks at which each alarm began, counted from the shift on."""

    looks: int
    alarms: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, looks: int, starts: Iterable[tuple[int, str]], shift: int = 0) -> Alarms:
        result = cls(looks)
        for place, name in starts:
            if place > shift:
                result.alarms.setdefault(name, []).append(place - shift)
        return result

    def delay(self, name: str) -> float:
        return min(self.alarms.get(name, ()), default=math.inf)


def watch(first: Sequence[Event], rest: Sequence[Event], window: int, shift: int = 0) -> Alarms:
    """Every look, as the monitor takes them; an alarm that goes on counts once."""
    ends = range(window, len(rest) + 1, window // LOOKS)
    looks = ((end, DriftLook(1, START + timedelta(seconds=end), detected(columns(first, rest[end - window : end])))) for end in ends)
    return Alarms.of(len(ends), alarm_starts(looks, THRESHOLDS, NEEDED), shift)


def stable_planted(windows: int, seed: int) -> Alarms:
    world = Planted(seed)
    return watch(world.events(WINDOW), world.events(WINDOW * (windows + 1)), WINDOW)


def shifted_planted(shift: Shift, seed: int) -> Alarms:
    """One stable window, so that the shift comes into a full one."""
    world = Planted(seed)
    first, before = world.events(WINDOW), world.events(WINDOW)
    return watch(first, [*before, *world.events(WINDOW * PATIENCE, shift)], WINDOW, WINDOW)


def stable_films(folder: Path, seed: int) -> Alarms:
    events = MovieLens(folder).shuffled(seed)
    return watch(events[:MANY], events[MANY:], MANY)


def shifted_films(folder: Path, shift: Shift, seed: int) -> Alarms:
    events, random = MovieLens(folder).shuffled(seed), np.random.default_rng([seed, 74])
    rest = [*events[MANY : 2 * MANY], *(changed(event, shift, random) for event in events[2 * MANY :])]
    return watch(events[:MANY], rest, MANY, MANY)


def earned(world: Earning, stable: int, more: int, seed: int) -> Alarms:
    """Takes a reading after each block, from the third window on: a comparison needs two windows."""
    blocks = list(islice(world.blocks(seed, stable), stable + more))
    ends = range(2 * LOOKS, len(blocks) + 1)
    looks = [(end, look) for end in ends if (look := fall(1, VariantSample(), blocks[:end], 500)) is not None]
    return Alarms.of(len(looks), alarm_starts(looks, {HIT_RATE: 0.1}, HITS_LOOKS), stable)


def rates(case: str, trials: Sequence[Alarms], contenders: Mapping[str, str]) -> Iterator[Row]:
    windows = sum(trial.looks for trial in trials) / LOOKS
    for name, contender in contenders.items():
        alarms = sum(len(trial.alarms.get(name, ())) for trial in trials)
        metric = f"false alarms per 1,000 windows ({alarms} in {windows:,.0f})"
        yield Row(case, contender, metric, "alarms", [1000 * alarms / windows])


def delays(case: str, trials: Sequence[Alarms], name: str, window: float, unit: str) -> Iterator[Row]:
    """Median and 90% over all runs, missed ones as never."""
    contender, firsts = CONTENDERS[name], [trial.delay(name) for trial in trials]
    yield Row(case, contender, f"missed in {PATIENCE} windows, of {len(trials)} runs", "runs", [sum(map(math.isinf, firsts))])
    for share, label in ((0.5, "median"), (0.9, "90%")):
        if math.isfinite(late := quantile(firsts, share)):
            yield Row(case, contender, f"delay, {label}", unit, [late])
            yield Row(case, contender, f"delay, {label}", "windows", [late / window])


def planted(pool: ProcessPoolExecutor, windows: int, runs: int) -> Iterator[Row]:
    each = 20
    trials = list(pool.map(partial(stable_planted, each), range(max(windows // each, 1))))
    yield from rates(f"planted world, stable, windows of {WINDOW:,} likes", trials, without(HIT_RATE))
    for shift in SHIFTS:
        trials = list(pool.map(partial(shifted_planted, shift), range(1000, 1000 + runs)))
        yield from delays(f"planted world, {shift.name}", trials, FINDS[shift.name.partition(":")[0]], WINDOW, "likes")


def films(pool: ProcessPoolExecutor, folder: Path, runs: int) -> Iterator[Row]:
    trials = list(pool.map(partial(stable_films, folder), range(2 * runs)))
    case = f"ml-100k, users in random order (stable), windows of {MANY:,} likes"
    yield from rates(case, trials, without("scores", HIT_RATE))
    for shift in (SHIFTS[0], SHIFTS[2], SHIFTS[4]):
        trials = list(pool.map(partial(shifted_films, folder, shift), range(500, 500 + runs)))
        yield from delays(f"ml-100k, {shift.name}", trials, FINDS[shift.name.partition(":")[0]], MANY, "likes")
    events = MovieLens(folder).events
    real = watch(events[:MANY], events[MANY:], MANY)
    case = f"ml-100k in its own order, windows of {MANY:,} likes (what really moved isn't known)"
    for name in (ANY, "psi"):
        yield Row(case, CONTENDERS[name], f"alarms in {real.looks / LOOKS:.0f} windows", "alarms", [len(real.alarms.get(name, ()))])
    if real.alarms.get(ANY):
        yield Row(case, CONTENDERS[ANY], "first alarm", "likes", [real.alarms[ANY][0]])


def hits(pool: ProcessPoolExecutor, windows: int, runs: int) -> Iterator[Row]:
    each = 50
    for hit_rate in (0.1, 0.3):
        world = Earning(hit_rate)
        trials = list(pool.map(partial(earned, world, 0, each * LOOKS), range(max(windows // each, 1))))
        case = f"hit rate of {hit_rate:.0%}, stable, windows of {world.users * LOOKS:,} users"
        yield from rates(case, trials, {HIT_RATE: CONTENDERS[HIT_RATE]})
    for world in FALLS:
        trials = list(pool.map(partial(earned, world, 10 * LOOKS, PATIENCE * LOOKS), range(700, 700 + runs)))
        case = f"hit rate of {world.rate:.0%} falls by {world.fall:.0%} after 10 windows of {world.users * LOOKS:,} users"
        yield from delays(case, trials, HIT_RATE, LOOKS, "quarters of a window")


def without(*names: str) -> dict[str, str]:
    return {name: contender for name, contender in CONTENDERS.items() if name not in names}


@benchmark("drift")
def drift(
    data: Annotated[Path, "where ml-100k/ lies"] = Path("var/data"),
    windows: Annotated[int, "stable ones"] = 4000,
    runs: Annotated[int, "of each shift"] = 60,
) -> Iterator[Outcome]:
    folder = data / "ml-100k"
    with workers() as pool:
        yield from hits(pool, windows, runs)
        yield from planted(pool, windows, runs)
        if (folder / "ml-100k.inter").is_file() and (folder / "ml-100k.item").is_file():
            yield from films(pool, folder, runs)
        else:
            yield Missed(
                f"not measured on real likes: {folder} holds no ml-100k.inter and ml-100k.item; name the folder above it by --data"
            )


if __name__ == "__main__":
    drift()
