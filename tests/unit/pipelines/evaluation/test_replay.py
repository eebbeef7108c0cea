"""What a warm run keeps of the time before: samples that are the same whoever draws them, and what is told by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.forgetting import ComparedModel, forgetting
from pipelines.stages.replay import drawn, with_past
from shared.contracts.evaluation import Evaluate
from shared.domain.metric import FORGOTTEN

USERS, ITEMS = 60, 200


def rows(count: int, seed: int, at: float = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": random.integers(0, USERS, count),
            "item": random.integers(0, ITEMS, count),
            "time": at + np.arange(count, dtype=float),
            "label": random.integers(0, 2, count).astype(np.int8),
        }
    )


@pytest.mark.requirement("G-09")
def test_a_sample_of_samples_is_the_sample_of_all() -> None:
    days = [rows(500, day, day * 1000.0) for day in range(5)]
    kept = days[0].lazy()
    for day in days[1:]:
        kept = pl.concat([drawn(kept, 300, 0), day.lazy()])
    whole = drawn(pl.concat(days).lazy(), 300, 0).collect()
    assert drawn(kept, 300, 0).collect().equals(whole)
    from_each = whole.group_by((pl.col("time") // 1000).alias("day")).len()["len"]
    assert len(from_each) == 5 and from_each.min() > 30, "evenly"


@pytest.mark.requirement("G-09")
def test_so_large_a_share_of_the_rows_is_older_as_far_as_there_are_any(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (share, expected) in enumerate([(0.2, 250), (0.5, 1000), (0.9, 4000)]):
        with subtests.test(share=share):
            folder = tmp_path / str(number)
            folder.mkdir()
            rows(1000, 1, 1e6).write_parquet(folder / "train.parquet")
            rows(4000, 2).write_parquet(folder / "past.parquet")
            count = with_past(folder / "train.parquet", folder / "past.parquet", share, 1, folder / "both.parquet")
            both = pl.read_parquet(folder / "both.parquet")
            assert count == expected == len(both.filter(pl.col("time") < 1e6))
            assert both.filter(pl.col("time") >= 1e6).equals(pl.read_parquet(folder / "train.parquet"))
            again = folder / "again.parquet"
            with_past(folder / "train.parquet", folder / "past.parquet", share, 2, again)
            assert count == 4000 or not pl.read_parquet(again).equals(both), "another seed draws others"


def taste(user: np.ndarray, row: np.ndarray) -> np.ndarray:
    return (user % 4 == row % 4) + row / 1000


def side(share: float, items: np.ndarray) -> ComparedModel:
    """Knows the taste of so large a share of the users; the others' scores say nothing."""

    def scorer(users: np.ndarray, rows: np.ndarray) -> np.ndarray:
        knows = users < share * USERS
        return np.where(knows, taste(users, items[rows]), (users * 31 + items[rows] * 17) % 97 / 97).astype(np.float32)

    return ComparedModel(scorer, None, items)


HELD = pl.DataFrame(
    {"user": np.repeat(np.arange(USERS), 5), "item": (np.repeat(np.arange(USERS), 5) % 4) + 4 * np.tile(np.arange(40, 45), USERS)}
)
HISTORY = HELD.with_columns(label=pl.lit(1, pl.Int8), before=pl.lit(1, pl.Int8))


@pytest.mark.requirement("G-09")
def test_what_was_forgotten_is_told_by_the_same_old_likes_whatever_else_is_in_either_catalogue() -> None:
    old, grown = np.arange(ITEMS), np.arange(-3, ITEMS + 50)
    same = forgetting(HELD.lazy(), HISTORY.lazy(), side(1, grown), side(1, old), 1, Evaluate())
    assert (same.cases, same.users) == (300, USERS)
    assert same.metrics[f"candidate.{FORGOTTEN}"] == 0
    lost = forgetting(HELD.lazy(), HISTORY.lazy(), side(0.5, grown), side(1, old), 1, Evaluate())
    value, error = lost.metrics[f"candidate.{FORGOTTEN}"], lost.metrics[f"candidate.{FORGOTTEN}.se"]
    assert 0.3 < value < 0.5 and 0 < error < 0.15
    assert value == pytest.approx(1 - lost.metrics["candidate.old.hr@10/99"] / lost.metrics["parent.old.hr@10/99"])
    fewer = forgetting(HELD.lazy(), HISTORY.lazy(), side(0.5, grown), side(1, old), 1, Evaluate(pairs=40 * ITEMS + 1))
    assert (fewer.cases, fewer.users) == (200, 40), "pair by pair, of the first users alone"
    gained = forgetting(HELD.lazy(), HISTORY.lazy(), side(1, grown), side(0.5, old), 1, Evaluate())
    assert gained.metrics[f"candidate.{FORGOTTEN}"] < -0.3


def test_too_few_users_or_nothing_held_out_give_no_number_but_a_reason() -> None:
    items = np.arange(ITEMS)
    few = forgetting(HELD.filter(pl.col("user") < 9).lazy(), HISTORY.lazy(), side(1, items), side(1, items), 1, Evaluate())
    assert f"candidate.{FORGOTTEN}" not in few.metrics and few.why == "only 9 users; at least 30 needed"
    none = forgetting(HELD.clear().lazy(), HISTORY.lazy(), side(1, items), side(1, items), 1, Evaluate())
    assert not none.metrics and none.why == "no earlier holdout rows are left to evaluate"
