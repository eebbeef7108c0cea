"""Rows that trees are grown on: folds, drawn negatives, and features that leave a row's own like out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.models.gbm import Gbm
from pipelines.models.trees import rows as rows_module
from pipelines.models.trees.knowledge import learn
from pipelines.models.trees.model import TreeModel
from pipelines.models.trees.rows import MixedNegatives, Popular, Retrieved, deal, factorised, find_out, fold_of
from shared.contracts.families import GbmParams
from shared.contracts.models import Model
from tests.support.taste_data import ITEMS, LOG, USERS, pairs, task

SMALL: dict[str, Any] = {"trees": 12, "depth": 4, "width": 8, "folds": 3}


def params(library: str, **more: Any) -> GbmParams:
    return GbmParams.model_validate({"library": library, **SMALL, **more})


def trained(folder: Path, **more: Any) -> TreeModel:
    return fitted(folder, **more).model  # type: ignore[no-any-return]


def fitted(folder: Path, train: dict[str, Any] | None = None, **more: Any) -> Any:
    given = task(folder, pairs(), "popularity")
    model = Model.model_validate({"family": "gbm", "params": SMALL | more, "train": train or {}})
    return Gbm().train(replace(given, model=model))


def test_a_list_of_many_codes_becomes_three_numbers() -> None:
    from pipelines.models.trees.layout import FeatureSource, _part

    values = np.array([[5, 90, 0, 0], [0, 0, 0, 0], [7, 7, 7, 80]], np.int32)
    part = _part(FeatureSource("tags", 4, 100), values)
    np.testing.assert_array_equal(part, [[2, 5, 90], [0, 100, 0], [4, 7, 80]])
    assert FeatureSource("tags", 4, 100).columns == ("count tags", "first tags", "last tags")


def test_a_row_to_grow_on_is_described_without_its_own_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liked = pairs()
    given = task(tmp_path, liked, "gbm", **SMALL)
    codes = given.items.columns["item"]
    files = deal(given.rows, codes, 3, 1, tmp_path)
    seen: list[set[tuple[int, int]]] = []

    def spied(some: Any, *rest: Any) -> Any:
        seen.append(set(zip(some.users.tolist(), some.items.tolist(), strict=True)))
        return learn(some, *rest)

    monkeypatch.setattr(rows_module, "learn", spied)
    chosen = given.model.params
    assert isinstance(chosen, GbmParams)
    find_out(replace(liked, users=liked.users + 2, items=liked.items + 2, user_count=USERS + 2, item_count=ITEMS + 2), chosen, 1, LOG)
    dealt = 0
    for path, others in zip(files, seen[:3], strict=True):
        assert path is not None
        rows = pl.read_parquet(path)
        assert rows["user_code"].is_sorted()
        mine = set(zip(rows["user_code"].to_list(), codes[rows["item_row"].to_numpy()].tolist(), strict=True))
        assert mine and not mine & others
        dealt += len(mine)
    assert dealt == len(liked) == len(seen[3])


def test_what_is_retrieved_is_what_the_factorisation_finds_without_likes() -> None:
    liked = pairs()
    known = learn(liked, factorised(liked, 8, 0.03, 1), len(liked))
    items = np.arange(ITEMS, dtype=np.int32)
    draw = Retrieved(known, items, liked, 10, np.arange(ITEMS))
    users = np.repeat(np.arange(USERS), 200)
    found = draw({"user_code": users}, np.random.default_rng(1))
    mine = {user: set(liked.items[liked.users == user].tolist()) for user in range(USERS)}
    fits = known.fits(np.arange(USERS))
    for user in range(USERS):
        free = np.array([item for item in range(ITEMS) if item not in mine[user]])
        best = set(free[np.argsort(-fits[user, free])][:10].tolist())
        assert set(found[users == user].tolist()) == best
    half = MixedNegatives(draw, np.arange(ITEMS))({"user_code": users}, np.random.default_rng(1))
    assert 0.4 < np.mean(half == found) < 0.75
    even = np.arange(0, ITEMS, 2)
    drawn = Retrieved(known, items, liked, 10, even)({"user_code": users}, np.random.default_rng(1))
    assert set(drawn.tolist()) <= set(even.tolist())


def test_popular_items_are_drawn_as_often_as_they_are_liked() -> None:
    likes, rows = np.array([0.0, 8.0, 1.0]), {"user_code": np.zeros(12_000)}
    assert set(Popular(likes, np.array([0, 2]))(rows, np.random.default_rng(1)).tolist()) == {0, 2}
    drawn = Popular(likes, np.arange(3))(rows, np.random.default_rng(1))
    np.testing.assert_allclose(np.bincount(drawn) / 12_000, [1 / 12, 9 / 12, 2 / 12], atol=0.02)


def test_rows_that_don_t_fit_into_memory_are_made_anew_on_each_pass_and_give_the_same_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = trained(tmp_path / "held")
    monkeypatch.setattr(rows_module.FoldRows, "_fits", False)
    monkeypatch.setattr(rows_module, "ROWS", 700)
    for name, array in trained(tmp_path / "streamed").trees.arrays.items():
        np.testing.assert_array_equal(array, held.trees.arrays[name])


def test_a_pair_is_in_one_fold_by_its_codes_and_the_seed() -> None:
    frame = pl.DataFrame({"user": np.repeat(np.arange(50), 40), "item": np.tile(np.arange(40), 50)})
    folds = [frame.select(fold_of(pl.col("user"), pl.col("item"), 4, seed)).to_series().to_numpy() for seed in (1, 1, 2)]
    np.testing.assert_array_equal(folds[0], folds[1])
    assert (folds[0] != folds[2]).mean() > 0.5
    np.testing.assert_allclose(np.bincount(folds[0].astype(np.int64)) / 2000, 0.25, atol=0.04)
