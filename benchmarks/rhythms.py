"""Whether a fall of the hit rate is found where the rate follows the day and the week, and how often a rhythm is taken for a fall: by
simulation through the code that decides.

    python -m benchmarks.rhythms [--weeks 400] [--users 400] [--workers 2]

Every world has a hit rate of 20%, times a wave over the day (`swing`, from its lowest to its highest point), times 0.85 on weekends. More
people come at the hours when the rate is high. A recommender lives five weeks of quarters of an hour: the first week is counted apart,
because `season: auto` compares days with each other then. The trigger is the default one, a fall of 10% that two looks in a row find.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Fields, Outcome, Row, benchmark
from benchmarks.trials import ANY, alarm_starts, finite
from benchmarks.trials import workers as worker_pool
from shared.domain.drift.reading import DriftLook
from shared.domain.drift.seasons import KEPT_WEEKS, WEEKS_BACK, AnswerHistory, BlockSeries, Season, seasonal_fall
from shared.domain.retrainer import HITS_LOOKS
from shared.domain.sequential_test import VariantSample

BLOCK, IN_A_DAY, IN_A_WEEK = timedelta(minutes=15), 96, 672
START = datetime(2026, 1, 5, tzinfo=UTC)
RATE, FALL, FEWEST = 0.2, 0.1, 500
LIFE, BEFORE_FALL = 5, 3
"""How many weeks a recommender is simulated, and how many of them pass before a fall."""
DECAYING = 16
FIRST_WEEK = 8 * IN_A_DAY
"""Blocks until which days are compared with days."""


@dataclass(frozen=True)
class Rhythm:
    swing: float
    weekend: bool
    noise: float = 0.0
    """The standard deviation of a random factor that each day's rate has."""

    @property
    def name(self) -> str:
        noise = f", days vary by {self.noise:.0%}" if self.noise else ""
        return f"swing {self.swing:.0%}, weekends {'15% lower' if self.weekend else 'as other days'}{noise}"


RHYTHMS = [Rhythm(swing, weekend) for weekend in (False, True) for swing in (0.0, 0.15, 0.25, 0.5)]


def blocks_of(rhythm: Rhythm, seed: int, weeks: int, users: int, level: NDArray[np.float64] | None = None) -> Iterator[VariantSample]:
    """`level`: what each block's rate is multiplied by."""
    random = np.random.default_rng((seed, 23))
    hours = np.arange(weeks * IN_A_WEEK) / 4
    wave = np.cos(2 * np.pi * (hours - 20) / 24)
    weekend = (hours // 24 % 7 >= 5) & rhythm.weekend
    rates = RATE * (1 + rhythm.swing / 2 * wave) * np.where(weekend, 0.85, 1.0)
    rates *= np.exp(random.normal(0, rhythm.noise, weeks * 7))[(hours // 24).astype(int)]
    if level is not None:
        rates *= level
    people = random.poisson(users * (1 + 0.6 * wave) * np.where(weekend, 1.2, 1.0))
    hits = random.binomial(people, np.clip(rates, 0, 1))
    for count, hit in zip(people.tolist(), hits.tolist(), strict=True):
        yield VariantSample(count, float(hit), float(hit), count, hit, hit)


def looks_at(samples: Iterable[VariantSample], season: Season) -> Iterator[tuple[int, DriftLook]]:
    blocks, days = BlockSeries(), BlockSeries()
    for number, sample in enumerate(samples, 1):
        blocks.add(sample)
        blocks.forget(max(len(blocks) - (WEEKS_BACK + 1) * IN_A_WEEK, 0))
        if number % IN_A_DAY == 0:
            days.add(blocks.of(len(blocks) - IN_A_DAY, len(blocks)))
            days.forget(max(len(days) - 7 * KEPT_WEEKS, 0))
        yield number, seasonal_fall(1, AnswerHistory(START + number * BLOCK, BLOCK, blocks, days), season, FEWEST, FALL)


def alarms(samples: Iterable[VariantSample], season: Season, until: int | None = None) -> list[int]:
    """The blocks at which the trigger begins to fire; none after the first one from `until` on."""
    starts: list[int] = []
    for number, name in alarm_starts(looks_at(samples, season), {"hit_rate": FALL}, HITS_LOOKS):
        if name == ANY:
            starts.append(number)
            if until is not None and number > until:
                break
    return starts


def stable(rhythm: Rhythm, users: int, season: Season, seed: int) -> tuple[bool, int]:
    """Whether there was an alarm in the first eight days; and in how many of the later weeks."""
    starts = alarms(blocks_of(rhythm, seed, LIFE, users), season)
    return any(block <= FIRST_WEEK for block in starts), len({block // IN_A_WEEK for block in starts if block > FIRST_WEEK})


def fallen(rhythm: Rhythm, users: int, loss: float, seed: int) -> float:
    """Hours from a fall to the alarm."""
    at = BEFORE_FALL * IN_A_WEEK + int(np.random.default_rng((seed, 29)).integers(IN_A_WEEK))
    level = np.where(np.arange((LIFE + 1) * IN_A_WEEK) >= at, 1 - loss, 1.0)
    return (_first(alarms(blocks_of(rhythm, seed, LIFE + 1, users, level), "auto", at), at) - at) / 4


def decayed(rhythm: Rhythm, users: int, seed: int) -> float:
    """Weeks until the alarm for a hit rate that loses 1% a week from the third one on."""
    week = np.arange(DECAYING * IN_A_WEEK) // IN_A_WEEK
    starts = alarms(blocks_of(rhythm, seed, DECAYING, users, 0.99 ** np.maximum(week - 1, 0)), "auto", FIRST_WEEK)
    return _first(starts, FIRST_WEEK) / IN_A_WEEK - 2


def _first(starts: list[int], after: int) -> float:
    """The first alarm after a block; infinite if there is none."""
    return next((block for block in starts if block > after), math.inf)


@benchmark("rhythms")
def rhythms(
    weeks: Annotated[int, "weeks of each world, the first ones of a life not counted"] = 400,
    users: Annotated[int, "users of a quarter of an hour"] = 400,
    season: Season = "auto",
    workers: int = 2,
) -> Iterator[Outcome]:
    yield Fields(weeks=weeks, users=users)
    lives = math.ceil(weeks / (LIFE - 1))
    windows = lives * (LIFE - 1)
    world = RHYTHMS[-2]
    with worker_pool(workers) as pool:
        for rhythm in (*RHYTHMS, *(replace(world, noise=noise) for noise in (0.02, 0.03))):
            results = list(pool.map(partial(stable, rhythm, users, season), range(lives)))
            first, later = sum(early for early, _ in results), sum(count for _, count in results)
            note = f"{later} of {windows}; first week: {first} of {lives}"
            yield Row(rhythm.name, "eyas", "weeks with a false alarm", "%", [100 * later / windows], note=note)
            yield Row(rhythm.name, "eyas", "first weeks with a false alarm", "%", [100 * first / lives])
        for loss in (0.1, 0.2, 0.5):
            hours = list(pool.map(partial(fallen, world, users, loss), range(20)))
            note = f"missed: {sum(map(math.isinf, hours))}"
            yield Row(world.name, "eyas", f"hours until a fall of {loss:.0%} is found", "h", finite(hours), note=note)
        late = finite(pool.map(partial(decayed, world, users), range(6)))
        yield Row(world.name, "eyas", "weeks until a decay of 1% a week is found", "weeks", late)


if __name__ == "__main__":
    rhythms()
