"""Data files of the acts: a thin, old part of the log; the full log; a log with bots; a log with inverted labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipelines.data.synthetic import Ratings, World, write_ratings

DAY = 86_400
HOLDOUT = 0.2
RATINGS = 50_000
BOT_RATINGS = 62_000
KNOWN_USERS, NEWCOMERS, ITEMS = 1_200, 20, 400
PART_OF_TIME, PART_OF_ROWS = 0.6, 0.9


@dataclass(frozen=True)
class Files:
    """Data files of the acts."""

    items: Path
    part: Path
    full: Path
    contaminated: Path
    mislabelled: Path


def world_of(seed: int) -> World:
    """Creates the world. Newcomers are users without ratings, who get popular items."""
    return World.create(KNOWN_USERS + NEWCOMERS, ITEMS, seed=seed)


def make(world: World, folder: Path, now: float, seed: int) -> Files:
    """Writes the items, 90 days of ratings that end yesterday, and their damaged copies."""
    end = int(now) - DAY
    start = end - 90 * DAY
    ratings = world.ratings(RATINGS, start, end, seed, world.user_ids[:KNOWN_USERS])
    files = Files(*(folder / f"{name}.parquet" for name in ("items", "part", "full", "contaminated", "mislabelled")))
    world.write_items(files.items)
    write_ratings(part(ratings, seed), files.part)
    write_ratings(ratings, files.full)
    write_ratings(contaminated(world, ratings, BOT_RATINGS, seed), files.contaminated)
    write_ratings(mislabelled(ratings, HOLDOUT), files.mislabelled)
    return files


def part(ratings: Ratings, seed: int) -> Ratings:
    """Returns 90% of the older 60% of the log."""
    thinned = np.random.default_rng([seed, 11]).random(len(ratings)) < PART_OF_ROWS
    return ratings.take(thinned & (ratings.timestamp < np.quantile(ratings.timestamp, PART_OF_TIME)))


def contaminated(world: World, ratings: Ratings, bots: int, seed: int) -> Ratings:
    """Adds bot ratings with the ids of real users over the whole time, and removes half of the real rows.

    The holdout is contaminated too, so offline metrics look good."""
    half = ratings.take(np.random.default_rng([seed, 12]).random(len(ratings)) < 0.5)
    start, end = int(ratings.timestamp.min()), int(ratings.timestamp.max()) + 1
    return half.joined(world.impostors().ratings(bots, start, end, seed + 1, np.unique(ratings.user)))


def mislabelled(ratings: Ratings, holdout: float) -> Ratings:
    """Inverts the stars before the holdout; the holdout (the newest rows) stays correct."""
    cut = np.sort(ratings.timestamp)[int((1 - holdout) * len(ratings))]
    inverted = np.where(ratings.timestamp < cut, 5.5 - ratings.rating, ratings.rating)
    return replace(ratings, rating=inverted)
