"""The planted world: equal for equal seeds, and its likes are the ones that were planted."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.data.synthetic import GENRES, Ratings, World, write_ratings

USERS, ITEMS = 300, 120
START, END = 1_700_000_000, 1_710_000_000


@pytest.fixture(scope="module")
def world() -> World:
    return World.create(USERS, ITEMS, seed=3)


def hit_rate(world: World, answers: list[list[int]]) -> float:
    return float(np.mean([1 - np.prod(1 - world.probability(int(u), a)) for u, a in zip(world.user_ids, answers, strict=True)]))


def perfect(world: World) -> list[list[int]]:
    return [world.best(int(user)).tolist() for user in world.user_ids]


def liked_genres(world: World, ratings: Ratings) -> Counter[str]:
    rows = np.searchsorted(world.item_ids, ratings.item[ratings.rating >= 4])
    counts = world.genres[rows].sum(axis=0)
    return Counter(dict(zip(world.genre_names, counts.tolist(), strict=True)))


def test_equal_seeds_make_equal_worlds_and_equal_ratings(world: World) -> None:
    again = World.create(USERS, ITEMS, seed=3)
    assert np.array_equal(world.tastes, again.tastes)
    first, second = world.ratings(4_000, START, END, 1), again.ratings(4_000, START, END, 1)
    assert all(np.array_equal(vars(first)[name], vars(second)[name]) for name in vars(first))
    assert not np.array_equal(first.item, world.ratings(4_000, START, END, 2).item)


def test_ratings_have_the_shape_of_movielens(world: World) -> None:
    ratings = world.ratings(4_000, START, END, 1)
    assert abs(len(ratings) - 4_000) < 200
    assert set(np.unique(ratings.rating)) <= {0.5 * n for n in range(1, 11)}
    assert (np.diff(ratings.timestamp) >= 0).all()
    assert START <= ratings.timestamp.min() <= ratings.timestamp.max() < END
    pairs = set(zip(ratings.user.tolist(), ratings.item.tolist(), strict=True))
    assert len(pairs) == len(ratings)
    assert {user for user, _ in pairs} == set(world.user_ids.tolist())


def test_items_have_one_to_four_real_genres(world: World, tmp_path: Path) -> None:
    world.write_items(tmp_path / "items.parquet")
    items = pl.read_parquet(tmp_path / "items.parquet")
    assert items.columns == ["movieId", "title", "genres"]
    lists = [text.split("|") for text in items["genres"]]
    assert {len(genres) for genres in lists} == {1, 2, 3, 4}
    assert {genre for genres in lists for genre in genres} <= set(GENRES)


def test_written_ratings_read_back_as_they_were(world: World, tmp_path: Path) -> None:
    ratings = world.ratings(1_000, START, END, 1)
    write_ratings(ratings, tmp_path / "ratings.parquet")
    frame = pl.read_parquet(tmp_path / "ratings.parquet")
    assert frame.schema == {"userId": pl.Int64, "movieId": pl.Int64, "rating": pl.Float64, "timestamp": pl.Int64}
    assert np.array_equal(frame["rating"].to_numpy(), ratings.rating)


def test_likes_follow_the_planted_chances(world: World) -> None:
    ratings = world.ratings(12_000, START, END, 1)
    chance = np.array([world.probability(int(u), [int(i)])[0] for u, i in zip(ratings.user, ratings.item, strict=True)])
    liked = ratings.rating >= 4
    shares = [liked[part].mean() for part in np.array_split(np.argsort(chance), 6)]
    assert shares == sorted(shares)
    assert shares[-1] > 5 * shares[0]


def test_a_perfect_recommender_earns_far_more_than_popularity(world: World) -> None:
    assert hit_rate(world, perfect(world)) > 1.5 * hit_rate(world, [world.popular().tolist()] * USERS)


def psi(before: Counter[str], after: Counter[str]) -> float:
    shares = [(before[name] / before.total(), after[name] / after.total()) for name in before.keys() & after.keys()]
    return sum((new - old) * math.log(new / old) for old, new in shares)


def test_a_shift_moves_the_genres_that_are_liked_and_lowers_the_hit_rate(world: World) -> None:
    moved = world.shifted(1)
    before, after = (liked_genres(one, one.ratings(8_000, START, END, 1)) for one in (world, moved))
    assert psi(before, after) > 0.25
    assert hit_rate(moved, perfect(world)) < 0.7 * hit_rate(world, perfect(world))
    assert hit_rate(moved, perfect(moved)) > hit_rate(moved, perfect(world))


def test_another_fashion_moves_the_genres_that_are_liked_and_no_taste(world: World) -> None:
    one, other = world.in_fashion(1), world.in_fashion(2)
    assert np.array_equal(one.tastes, other.tastes)
    before, after = (liked_genres(those, those.ratings(8_000, START, END, 1)) for those in (one, other))
    assert psi(before, after) > 0.25
    assert hit_rate(other, perfect(one)) < 0.85 * hit_rate(other, perfect(other))
    assert np.array_equal(one.appeal, world.in_fashion(1).appeal)


def test_exchanged_tastes_are_the_same_tastes_of_other_users(world: World) -> None:
    moved = world.exchanged(1, share=0.5)
    changed = (moved.tastes != world.tastes).any(axis=1)
    assert changed.sum() == USERS // 2
    assert np.array_equal(np.sort(moved.tastes, axis=0), np.sort(world.tastes, axis=0))
    before, after = (liked_genres(those, those.ratings(8_000, START, END, 1)) for those in (world, moved))
    assert psi(before, after) < 0.02
    assert hit_rate(moved, perfect(world)) < 0.8 * hit_rate(moved, perfect(moved))


def test_everybodys_liking_is_each_ones(world: World) -> None:
    assert np.allclose(world.liking()[6], world.probability(7, world.item_ids))


def test_what_impostors_like_earns_next_to_nothing(world: World) -> None:
    assert hit_rate(world, perfect(world.impostors())) < 0.1 * hit_rate(world, perfect(world))


def test_organic_picks_are_liked_and_disliked(world: World) -> None:
    items, stars = world.organic(5, 60, np.random.default_rng(1))
    assert len(set(items.tolist())) == 60
    assert 0 < (stars >= 4).sum() < 60


def test_the_last_word_on_a_pair_wins_when_ratings_are_joined() -> None:
    one = Ratings(np.array([1, 1]), np.array([7, 8]), np.array([5.0, 4.0]), np.array([10, 20]))
    other = Ratings(np.array([1, 2]), np.array([7, 7]), np.array([0.5, 3.0]), np.array([30, 5]))
    joined = one.joined(other)
    found = set(zip(joined.user.tolist(), joined.item.tolist(), joined.rating.tolist(), joined.timestamp.tolist(), strict=True))
    assert found == {(1, 7, 0.5, 30), (1, 8, 4.0, 20), (2, 7, 3.0, 5)}
    assert joined.timestamp.tolist() == [5, 20, 30]


def test_a_world_without_users_items_or_genres_is_refused(subtests: pytest.Subtests) -> None:
    for users, items, genres in [(0, 10, 5), (10, 0, 5), (10, 10, 3), (10, 10, 99)]:
        with subtests.test(users=users, items=items, genres=genres), pytest.raises(ValueError, match="a synthetic world needs"):
            World.create(users, items, genres)


def test_more_ratings_than_fit_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match="at most half"):
        world.ratings(USERS * ITEMS, START, END, 1)


def test_strangers_are_refused_by_name(world: World) -> None:
    with pytest.raises(KeyError, match="unknown user 9999"):
        world.probability(9_999, world.popular(1))
