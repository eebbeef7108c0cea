"""What the acts learn from: thin, full, flooded by bots, upside down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from demo import datasets
from pipelines.data.synthetic import Ratings, World

START, END = 1_700_000_000, 1_710_000_000


@pytest.fixture(scope="module")
def world() -> World:
    return World.create(300, 120, seed=3)


@pytest.fixture(scope="module")
def ratings(world: World) -> Ratings:
    return world.ratings(6_000, START, END, 1)


def test_the_part_is_older_and_thinner(ratings: Ratings) -> None:
    part = datasets.part(ratings, 1)
    assert 0 < len(part) < 0.6 * len(ratings)
    assert part.timestamp.max() < np.quantile(ratings.timestamp, 0.61)


def test_contamination_keeps_the_schema_the_users_and_the_time(world: World, ratings: Ratings) -> None:
    flooded = datasets.contaminated(world, ratings, 6_000, 1)
    assert [column.dtype for column in vars(flooded).values()] == [column.dtype for column in vars(ratings).values()]
    assert set(flooded.user.tolist()) <= set(ratings.user.tolist())
    assert flooded.timestamp.min() >= ratings.timestamp.min()
    assert flooded.timestamp.max() <= ratings.timestamp.max()
    assert set(np.unique(flooded.rating)) <= {0.5 * n for n in range(1, 11)}
    assert len(set(zip(flooded.user.tolist(), flooded.item.tolist(), strict=True))) == len(flooded)


def test_what_contaminated_logs_praise_is_not_what_users_like(world: World, ratings: Ratings) -> None:
    def chance_of_praised(log: Ratings) -> float:
        praised = log.take(log.rating >= 4)
        return float(np.mean([world.probability(int(u), [int(i)])[0] for u, i in zip(praised.user, praised.item, strict=True)]))

    holdout = ratings.timestamp >= np.quantile(ratings.timestamp, 0.8)
    flooded = datasets.contaminated(world, ratings, 6_000, 1)
    flooded_holdout = flooded.timestamp >= np.quantile(flooded.timestamp, 0.8)
    assert chance_of_praised(flooded) < 0.7 * chance_of_praised(ratings)
    assert chance_of_praised(flooded.take(flooded_holdout)) < 0.7 * chance_of_praised(ratings.take(holdout))


def test_mislabelling_flips_the_training_period_alone(ratings: Ratings) -> None:
    wrong = datasets.mislabelled(ratings, 0.2)
    first_kept = int(0.8 * len(ratings))
    before = wrong.timestamp < wrong.timestamp[first_kept]
    assert abs(before.mean() - 0.8) < 0.01
    assert np.array_equal(wrong.rating[before], 5.5 - ratings.rating[before])
    assert np.array_equal(wrong.rating[~before], ratings.rating[~before])
    assert np.array_equal(wrong.user, ratings.user)


def test_the_files_of_the_demo_leave_newcomers_out(tmp_path: Path) -> None:
    world = datasets.world_of(1)
    files = datasets.make(world, tmp_path, 1_800_000_000, 1)
    users = set(pl.read_parquet(files.full)["userId"].to_list())
    assert len(users) == datasets.KNOWN_USERS
    assert len(world.user_ids) == datasets.KNOWN_USERS + datasets.NEWCOMERS
    columns = ["userId", "movieId", "rating", "timestamp"]
    assert all(pl.read_parquet(one).columns == columns for one in (files.part, files.full, files.contaminated, files.mislabelled))
    assert pl.read_parquet(files.full)["timestamp"].max() < 1_800_000_000
