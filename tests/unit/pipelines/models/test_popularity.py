"""The baseline counts what was liked, and recent likes more if that foretells the newest ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.models import popularity_baseline
from pipelines.models.popularity_baseline import DAY, HALF_LIVES, Popularity, fit_popularity, load_popularity

ITEMS = pl.Series([1, 2, 3, 4])


def test_items_are_ordered_by_their_positives_and_equal_ones_by_key() -> None:
    train = pl.LazyFrame({"item": [3, 3, 2, 2, 4, 1], "label": [1, 1, 1, 0, 1, 0]})
    popularity = fit_popularity(train, ITEMS)
    assert popularity.scores.tolist() == popularity.counts.tolist() == [0, 1, 2, 1]
    assert popularity.ordered().tolist() == [3, 2, 4, 1]


def test_a_warm_run_orders_equal_counts_as_the_parent_did() -> None:
    parent = fit_popularity(pl.LazyFrame({"item": [4, 4, 4, 2], "label": [1, 1, 1, 1]}), ITEMS)
    popularity = fit_popularity(pl.LazyFrame({"item": [1], "label": [1]}), ITEMS, parent)
    assert popularity.ordered().tolist() == [1, 4, 2, 3]


def test_a_warm_run_adds_what_the_parents_scores_are_worth_by_then() -> None:
    parent = Popularity(ITEMS.to_numpy(), np.array([8.0, 4.0, 0.0, 0.0]), np.array([9, 5, 0, 0]), half_life=7 * DAY, until=0.0)
    rows = pl.LazyFrame({"item": [3, 2], "label": [1, 1], "time": [14 * DAY, 7 * DAY]})
    popularity = fit_popularity(rows, ITEMS, parent)
    assert popularity.scores.tolist() == [8 / 4, 4 / 4 + 1 / 2, 1, 0]
    assert (popularity.counts.tolist(), popularity.half_life, popularity.until) == ([0, 1, 1, 0], 7 * DAY, 14 * DAY)


def test_a_saved_baseline_is_read_again_and_so_is_one_of_an_older_release(tmp_path: Path) -> None:
    saved = Popularity(ITEMS.to_numpy(), np.array([0.5, 2.25, 0.0, 1.0]), np.array([1, 4, 0, 1]), 3 * DAY, 99.0)
    again = load_popularity(saved.save(tmp_path / "popularity.parquet"))
    assert (again.half_life, again.until, again.counts.tolist(), again.scores.tolist()) == (
        3 * DAY,
        99.0,
        saved.counts.tolist(),
        saved.scores.tolist(),
    )
    pl.DataFrame({"item": ITEMS, "score": [3.0, 1.0, 0.0, 2.0]}).write_parquet(tmp_path / "old.parquet")
    old = load_popularity(tmp_path / "old.parquet")
    assert (old.half_life, old.counts.tolist()) == (None, [3, 1, 0, 2])


class World:
    """Users who like items by a popularity that drifts, or stays, over 120 days; the last 12 come after the training."""

    def __init__(self, seed: int, drifts: bool, users: int = 300, items: int = 150, likes: int = 9_000) -> None:
        random = np.random.default_rng([seed, 5])
        day = np.sort(random.uniform(0, 120, likes))
        peak, level = random.uniform(0, 120, items), (1.0 + random.permutation(items)) ** -0.7
        weight = level[None, :] * (np.exp(-(((day[:, None] - peak[None, :]) / 12) ** 2)) if drifts else 1.0)
        shares = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
        item = (shares < random.random(likes)[:, None]).sum(axis=1)
        frame = pl.DataFrame({"user": random.integers(0, users, likes), "item": item, "time": day * DAY, "label": np.ones(likes, np.int8)})
        frame = frame.unique(["user", "item"], keep="first", maintain_order=True)
        self.items = pl.Series(np.arange(items))
        self.train, self.later = frame.filter(pl.col("time") < 108 * DAY), frame.filter(pl.col("time") >= 108 * DAY)

    def hits(self, popularity: Popularity) -> float:
        """The share of later likes among the ten most popular items."""
        return float(self.later["item"].is_in(popularity.ordered()[:10].tolist()).mean())  # type: ignore[arg-type]

    def chosen_and_equal(self) -> tuple[Popularity, Popularity]:
        return fit_popularity(self.train.lazy(), self.items), fit_popularity(self.train.lazy(), self.items, timed=False)


@pytest.mark.requirement("U-15")
def test_where_popularity_drifts_a_half_life_foretells_more() -> None:
    worlds = [World(seed, drifts=True) for seed in range(6)]
    pairs = [world.chosen_and_equal() for world in worlds]
    assert {chosen.half_life in HALF_LIVES[:5] for chosen, _ in pairs} == {True}
    for world, (chosen, equal) in zip(worlds, pairs, strict=True):
        assert world.hits(chosen) > 1.5 * world.hits(equal)


@pytest.mark.requirement("U-15")
def test_where_popularity_stays_the_choice_costs_next_to_nothing() -> None:
    worlds = [World(seed, drifts=False) for seed in range(12)]
    pairs = [world.chosen_and_equal() for world in worlds]
    hits = np.array([[world.hits(popularity) for popularity in pair] for world, pair in zip(worlds, pairs, strict=True)]).mean(axis=0)
    assert hits[0] > 0.98 * hits[1]
    assert sum(chosen.half_life is None for chosen, _ in pairs) >= 6


def test_gains_are_those_of_each_case_ranked_alone() -> None:
    """Written anew, case by case: equal scores share the middle rank, and what the user liked before is left out."""
    random = np.random.default_rng(3)
    scores = random.integers(0, 6, 30).astype(float)
    cases = pl.DataFrame({"user": random.integers(0, 9, 60), "row": random.integers(0, 30, 60)})
    liked = pl.DataFrame({"user": random.integers(0, 12, 80), "row": random.integers(0, 30, 80)}).unique()
    liked = liked.join(cases, on=["user", "row"], how="anti")
    gains: dict[int, list[float]] = {}
    for user, row in cases.iter_rows():
        rivals = np.delete(scores, [row, *liked.filter(pl.col("user") == user)["row"].to_list()])
        rank = 1 + (rivals > scores[row]).sum() + (rivals == scores[row]).sum() / 2
        gains.setdefault(user, []).append(1 / np.log2(rank + 1) if rank <= 10 else 0.0)
    assert popularity_baseline._gains(scores, cases, liked).tolist() == pytest.approx([np.mean(values) for values in gains.values()])


def test_without_times_or_with_few_users_all_positives_count_equally() -> None:
    world = World(1, drifts=True)
    assert fit_popularity(world.train.lazy().drop("time"), world.items).half_life is None
    assert fit_popularity(world.train.filter(pl.col("user") < 20).lazy(), world.items).half_life is None
    assert fit_popularity(world.train.clear().lazy(), world.items).scores.tolist() == [0.0] * len(world.items)
