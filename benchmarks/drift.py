"""How late drift is found, and how often it is seen where there is none, for each detector and through the code that judges; beside them
the bare PSI.

    python -m benchmarks.drift [--data FOLDER] [--windows 4000] [--runs 60]

FOLDER holds `ml-100k/`, MovieLens 100K as recbole's atomic files (ml-100k.inter, ml-100k.item); it isn't part of Eyas. Without it the
planted worlds are measured alone, and the command says what is missing and ends with 1.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path

from rich.console import Console

from benchmarks.drift_worlds import SHIFTS, START, Earning, Event, MovieLens, Planted, Shift, changed, columns
from benchmarks.report import Row, publish
from shared.domain.drift.alarm_decision import NOTHING_YET, remember
from shared.domain.drift.detectors import DETECTORS, LOOKS, detected
from shared.domain.drift.hit_rate_detector import fall
from shared.domain.drift.reading import DriftColumn, DriftLook
from shared.domain.retrainer import HITS_LOOKS
from shared.domain.sequential_test import VariantSample

WINDOW, MANY = 1000, 5000
"""Likes in a window: of the planted world, and of ml-100k, where a thousand likes are seventeen users."""
THRESHOLDS = {"psi": 0.2, "new": 0.05, "nulls": 0.05, "scores": 0.2}
BARE = "bare psi"
FALLS = (Earning(0.3, 0.1), Earning(0.3, 0.2), Earning(0.3, 0.3), Earning(0.1, 0.2), Earning(0.1, 0.3))
PATIENCE = 8
"""Windows after which a shift that wasn't found is missed."""
RAW = (20, 0.5)
"""Bins of the bare PSI, and what an empty one counts."""


@dataclass
class Seen:
    """By contender: looks at which each alarm began."""

    looks: int = 0
    alarms: dict[str, list[int]] = field(default_factory=dict)


def watch(first: Sequence[Event], rest: Sequence[Event], window: int, needed: int) -> Seen:
    """Every look, as the monitor takes them; an alarm that goes on is one."""
    memory, standing, seen = NOTHING_YET, set[str](), Seen()
    for end in range(window, len(rest) + 1, window // LOOKS):
        given = columns(first, rest[end - window : end])
        look = DriftLook(1, START + timedelta(seconds=end), detected(given))
        memory = remember(memory, look, THRESHOLDS, needed)
        now = {one.reading.detector for one in memory.moved} | ({BARE} if _bare(given) > THRESHOLDS["psi"] else set())
        for one in now - standing:
            seen.alarms.setdefault(one, []).append(end)
        if now - {BARE} and not standing - {BARE}:
            seen.alarms.setdefault("all", []).append(end)
        standing = now
        seen.looks += 1
    return seen


def _bare(columns: Sequence[DriftColumn]) -> float:
    """As it was: the index of each feature over likes, the greatest."""
    found = 0.0
    for column in columns:
        if column.kind != "feature":
            continue
        before, after = (Counter(text for one in side for text in one.texts or ()) for side in (column.first, column.now))
        kept = {name for name, _ in before.most_common(RAW[0] - 1)}
        sides = [Counter[str]() for _ in range(2)]
        for side, counts in zip(sides, (before, after), strict=True):
            for name, count in counts.items():
                side[name if name in kept else "other"] += count
        names = sides[0].keys() | sides[1].keys()
        totals = [sum(max(side[name], RAW[1]) for name in names) for side in sides]
        shares = [[max(side[name], RAW[1]) / total for name in names] for side, total in zip(sides, totals, strict=True)]
        found = max(found, sum((q - p) * math.log(q / p) for p, q in zip(*shares, strict=True)))
    return found


def stable_planted(seed: int, windows: int, needed: int) -> Seen:
    world = Planted(seed)
    return watch(world.events(WINDOW), world.events(WINDOW * (windows + 1)), WINDOW, needed)


def shifted_planted(seed: int, shift: Shift, needed: int) -> Seen:
    """One stable window, so that the shift comes into a full one; alarms are counted from the shift on."""
    world = Planted(seed)
    first, before = world.events(WINDOW), world.events(WINDOW)
    return after(watch(first, [*before, *world.events(WINDOW * PATIENCE, shift)], WINDOW, needed), WINDOW)


def after(seen: Seen, at: int) -> Seen:
    return Seen(seen.looks, {name: [one - at for one in found if one > at] for name, found in seen.alarms.items()})


def stable_films(seed: int, folder: str, needed: int) -> Seen:
    given = MovieLens(Path(folder)).shuffled(seed)
    return watch(given[:MANY], given[MANY:], MANY, needed)


def shifted_films(seed: int, folder: str, shift: Shift, needed: int) -> Seen:
    import numpy as np

    given = MovieLens(Path(folder)).shuffled(seed)
    rng = np.random.default_rng([seed, 74])
    rest = [*given[MANY : 2 * MANY], *(changed(one, shift, rng) for one in given[2 * MANY :])]
    return after(watch(given[:MANY], rest, MANY, needed), MANY)


def earned(seed: int, world: Earning, stable: int, more: int) -> Seen:
    """One reading at each block; the first 2 windows are too few to say anything."""
    memory, stood, seen, blocks = NOTHING_YET, False, Seen(), list(islice(world.blocks(seed, stable), stable + more))
    for end in range(2 * LOOKS, len(blocks) + 1):
        look = fall(1, VariantSample(), blocks[:end], 500)
        if look is None:
            continue
        memory = remember(memory, look, {"hit_rate": 0.1}, HITS_LOOKS)
        if memory.moved and not stood:
            seen.alarms.setdefault("hit_rate", []).append(end - stable)
        stood = bool(memory.moved)
        seen.looks += 1
    return seen


def rate(case: str, found: Sequence[Seen], contenders: Mapping[str, str]) -> list[Row]:
    windows = sum(one.looks for one in found) / LOOKS
    rows = []
    for key, contender in contenders.items():
        alarms = sum(len(one.alarms.get(key, ())) for one in found)
        rows.append(
            Row(case, contender, f"false alarms per 1,000 windows ({alarms} in {windows:,.0f})", "alarms", [1000 * alarms / windows])
        )
    return rows


def delays(case: str, found: Sequence[Seen], key: str, contender: str, window: float, unit: str) -> list[Row]:
    """Median and 90% over all runs, missed ones as never."""
    firsts = sorted(min((one for one in seen.alarms.get(key, ()) if one > 0), default=math.inf) for seen in found)
    missed = sum(map(math.isinf, firsts))
    rows = [Row(case, contender, f"missed in {PATIENCE} windows, of {len(found)} runs", "runs", [missed])]
    for share, label in ((0.5, "median"), (0.9, "90%")):
        late = firsts[math.ceil(share * len(firsts)) - 1]
        if math.isfinite(late):
            rows.append(Row(case, contender, f"delay, {label}", unit, [late]))
            rows.append(Row(case, contender, f"delay, {label}", "windows", [late / window]))
    return rows


OURS = {"all": "eyas", **{name: f"eyas: {name}" for name in DETECTORS}, BARE: "psi above 0.2"}
FINDS = {"feature": "psi", "category": "new", "missing": "nulls", "scores": "scores", "taste": "all"}


def planted(pool: ProcessPoolExecutor, windows: int, runs: int, told: Callable[[str], None]) -> Iterator[Row]:
    each = 20
    seeds = range(max(windows // each, 1))
    found = list(pool.map(stable_planted, seeds, [each] * len(seeds), [3] * len(seeds)))
    case = f"planted world, stable, windows of {WINDOW:,} likes"
    told(case)
    yield from rate(case, found, OURS)
    for shift in SHIFTS:
        found = list(pool.map(shifted_planted, range(1000, 1000 + runs), [shift] * runs, [3] * runs))
        told(shift.name)
        key = FINDS[shift.name.partition(":")[0]]
        yield from delays(f"planted world, {shift.name}", found, key, OURS[key], WINDOW, "likes")
        if key == "psi":
            yield from delays(f"planted world, {shift.name}", found, BARE, OURS[BARE], WINDOW, "likes")


def films(pool: ProcessPoolExecutor, folder: str, runs: int, told: Callable[[str], None]) -> Iterator[Row]:
    several = 2 * runs
    found = list(pool.map(stable_films, range(several), [folder] * several, [3] * several))
    case = f"ml-100k, users in random order (stable), windows of {MANY:,} likes"
    told(case)
    yield from rate(case, found, {name: said for name, said in OURS.items() if name != "scores"})
    for shift in (SHIFTS[0], SHIFTS[2], SHIFTS[4]):
        found = list(pool.map(shifted_films, range(500, 500 + runs), [folder] * runs, [shift] * runs, [3] * runs))
        told(f"ml-100k, {shift.name}")
        key = FINDS[shift.name.partition(":")[0]]
        yield from delays(f"ml-100k, {shift.name}", found, key, OURS[key], MANY, "likes")
    given = MovieLens(Path(folder)).events
    seen = watch(given[:MANY], given[MANY:], MANY, 3)
    case = f"ml-100k in its own order, windows of {MANY:,} likes (what really moved isn't known)"
    for key in ("all", "psi", BARE):
        yield Row(case, OURS[key], f"alarms in {seen.looks / LOOKS:.0f} windows", "alarms", [len(seen.alarms.get(key, ()))])
    if seen.alarms.get("all"):
        yield Row(case, OURS["all"], "first alarm", "likes", [seen.alarms["all"][0]])


def hits(pool: ProcessPoolExecutor, windows: int, runs: int, told: Callable[[str], None]) -> Iterator[Row]:
    each = 50
    several = max(windows // each, 1)
    for hit_rate in (0.1, 0.3):
        world = Earning(hit_rate)
        found = list(pool.map(earned, range(several), [world] * several, [0] * several, [each * LOOKS] * several))
        case = f"hit rate of {hit_rate:.0%}, stable, windows of {world.users * LOOKS:,} users"
        told(case)
        yield from rate(case, found, {"hit_rate": "eyas: hit_rate"})
    for world in FALLS:
        stable, more = 10 * LOOKS, PATIENCE * LOOKS
        found = list(pool.map(earned, range(700, 700 + runs), [world] * runs, [stable] * runs, [more] * runs))
        case = f"hit rate of {world.rate:.0%} falls by {world.fall:.0%} after 10 windows of {world.users * LOOKS:,} users"
        told(case)
        yield from delays(case, found, "hit_rate", "eyas: hit_rate", LOOKS, "quarters of a window")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("var/data"), help="where ml-100k/ lies")
    parser.add_argument("--windows", type=int, default=4000, help="stable ones")
    parser.add_argument("--runs", type=int, default=60, help="of each shift")
    given = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    began = time.monotonic()

    def told(what: str) -> None:
        say(f"{time.monotonic() - began:6.0f} s  {what}")

    folder: Path = given.data / "ml-100k"
    there = (folder / "ml-100k.inter").is_file() and (folder / "ml-100k.item").is_file()
    with ProcessPoolExecutor(2) as pool:
        rows = [*hits(pool, given.windows, given.runs, told), *planted(pool, given.windows, given.runs, told)]
        if there:
            rows += films(pool, str(folder), given.runs, told)
    publish("drift", rows)
    if not there:
        say(f"not measured on real likes: {folder} holds no ml-100k.inter and ml-100k.item; name the folder above it by --data")
    return 0 if there else 1


if __name__ == "__main__":
    raise SystemExit(main())
