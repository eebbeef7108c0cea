"""The files that the acts learn from: a thin old part, the full log, one that bots flooded, one with inverted labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipelines.data.synthetic import Ratings, World, write_ratings

DAY = 86_400
HOLDOUT = 0.2
RATINGS = 80_000
BOT_RATINGS = 100_000
KNOWN_USERS, NEWCOMERS, ITEMS = 2_400, 40, 400
PART_OF_TIME, PART_OF_ROWS = 0.6, 0.9


@dataclass(frozen=True)
class Files:
    """Where the data of each act lies."""

    items: Path
    part: Path
    full: Path
    contaminated: Path
    mislabelled: Path


def world_of(seed: int) -> World:
    """Newcomers are users whom no log has seen: they get popular items."""
    return World.create(KNOWN_USERS + NEWCOMERS, ITEMS, seed=seed)


def make(world: World, folder: Path, now: float, seed: int) -> Files:
    """Three months of ratings that end yesterday, and what can go wrong with them."""
    end = int(now) - DAY
    start = end - 90 * DAY
    ratings = world.ratings(RATINGS, start, end, seed, world.user_ids[:KNOWN_USERS])
    found = Files(*(folder / f"{name}.parquet" for name in ("items", "part", "full", "contaminated", "mislabelled")))
    world.write_items(found.items)
    write_ratings(part(ratings, seed), found.part)
    write_ratings(ratings, found.full)
    write_ratings(contaminated(world, ratings, BOT_RATINGS, seed), found.contaminated)
    write_ratings(mislabelled(ratings, HOLDOUT), found.mislabelled)
    return found


def part(ratings: Ratings, seed: int) -> Ratings:
    """The older stretch of the log, and not every row of it: what a young platform has."""
    thinned = np.random.default_rng([seed, 11]).random(len(ratings)) < PART_OF_ROWS
    return ratings.take(thinned & (ratings.timestamp < np.quantile(ratings.timestamp, PART_OF_TIME)))


def contaminated(world: World, ratings: Ratings, bots: int, seed: int) -> Ratings:
    """A flood of bots under real users' ids, over the whole time, in which half of the real rows got lost.

    What is learnt from it is wrong, and its holdout agrees.
    """
    kept = ratings.take(np.random.default_rng([seed, 12]).random(len(ratings)) < 0.5)
    start, end = int(ratings.timestamp.min()), int(ratings.timestamp.max()) + 1
    return kept.joined(world.impostors().ratings(bots, start, end, seed + 1, np.unique(ratings.user)))


def mislabelled(ratings: Ratings, holdout: float) -> Ratings:
    """Stars upside down in the training period alone; the holdout, the newest share of the rows, stays sound."""
    cut = np.sort(ratings.timestamp)[int((1 - holdout) * len(ratings))]
    inverted = np.where(ratings.timestamp < cut, 5.5 - ratings.rating, ratings.rating)
    return replace(ratings, rating=inverted)
