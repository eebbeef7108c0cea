"""Neighbours of items: against a slow plain count, whatever the blocks; taste found; strangers; warm runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.models.families import load_model
from pipelines.models.itemknn import ItemKnn, ItemKnnModel
from pipelines.training import sparse
from pipelines.training.itemknn import Nearness, find_neighbours
from pipelines.training.likes import LikePairs
from shared.domain.errors import Invalid
from tests.support.feature_graphs import of_keys
from tests.support.taste_data import ITEMS, USERS, ones, pairs, recall, task


def plainly(liked: LikePairs, how: Nearness) -> np.ndarray:
    """How near each item is to each other, by definition."""
    likes = ones(liked)
    says = np.array([sum(row) ** -how.damping if sum(row) else 0 for row in likes])
    near = np.zeros((liked.item_count, liked.item_count))
    for one in range(liked.item_count):
        for other in range(liked.item_count):
            if one != other:
                both = sum(says[user] for user in range(liked.user_count) if likes[user, one] and likes[user, other])
                weights = [(likes[:, item] * says).sum() for item in (one, other)]
                near[one, other] = both and both / (weights[0] ** how.pull * weights[1] ** (1 - how.pull) + how.shrink)
    return near


def trained(folder: Path, liked: LikePairs, **params: object) -> ItemKnnModel:
    model = ItemKnn().train(task(folder, liked, "itemknn", **params)).model
    assert isinstance(model, ItemKnnModel)
    return model


@pytest.mark.parametrize("cells", [sparse.CELLS, 100])
@pytest.mark.parametrize("how", [Nearness(6, 0, 0, 0.5), Nearness(6, 3, 0.5, 0.7), Nearness(39, 1, 1, 0)])
def test_neighbours_are_the_nearest_by_definition(monkeypatch: pytest.MonkeyPatch, cells: int, how: Nearness) -> None:
    monkeypatch.setattr(sparse, "CELLS", cells)
    liked = pairs()
    expected, found = plainly(liked, how), find_neighbours(liked, how, -1)
    for item in range(ITEMS):
        there = found.items[item] >= 0
        np.testing.assert_allclose(found.nearness[item], -np.sort(-expected[item])[: how.count], rtol=1e-5)
        np.testing.assert_allclose(found.nearness[item][there], expected[item, found.items[item][there]], rtol=1e-5)
        assert len(set(found.items[item][there])) == there.sum() and item not in found.items[item]


def test_an_item_that_nobody_likes_has_no_neighbours() -> None:
    liked = pairs()
    found = find_neighbours(liked.take(np.flatnonzero(liked.items != 7)), Nearness(5, 0, 0, 0.5), -1)
    assert (found.items[7] == -1).all() and not found.nearness[7].any()
    assert 7 not in found.items


@pytest.mark.requirement("G-17")
def test_it_finds_the_tastes_of_users_in_likes_that_it_never_saw(tmp_path: Path) -> None:
    liked = pairs()
    cut = len(liked) * 4 // 5
    shown, held = liked.take(slice(0, cut)), liked.take(slice(cut, None))
    scores = trained(tmp_path, shown).every(np.arange(USERS) + 2)[:, 2:]
    assert recall(scores, held, hidden=shown) > 0.7  # ten of thirty-two at random would be a third


@pytest.mark.requirement("G-09")
def test_a_warm_run_counts_anew_over_every_like_so_far(tmp_path: Path) -> None:
    everything = pairs()
    old, new = everything.take(slice(0, 300)), everything.take(slice(300, None))
    files = trained(tmp_path / "parent", old).save(tmp_path)
    pl.DataFrame({"user": old.users, "item": old.items, "label": 1, "before": 1}).write_parquet(tmp_path / "history.parquet")
    given = replace(task(tmp_path / "warm", new, "itemknn", lambda name: files[name]), history=tmp_path / "history.parquet")
    warm, full = ItemKnn().train(given).model, trained(tmp_path / "full", everything)
    assert isinstance(warm, ItemKnnModel)
    np.testing.assert_allclose(warm.every(np.arange(USERS)), full.every(np.arange(USERS)), rtol=1e-5)


def test_a_saved_model_is_read_back_the_same(tmp_path: Path) -> None:
    model = trained(tmp_path, pairs(), neighbours=5)
    files = model.save(tmp_path)
    again = load_model(lambda name: files[name])
    np.testing.assert_array_equal(again.every(np.arange(9)), model.every(np.arange(9)))  # type: ignore[attr-defined]
    assert [(one.column, one.cardinality, one.width) for one in again.tables] == [("item", ITEMS + 2, 12)]


def test_a_model_too_large_for_memory_is_refused_before_anything_is_counted(short_of_memory: Callable[[int], None], tmp_path: Path) -> None:
    short_of_memory(2_000_000_000)
    given = replace(task(tmp_path, pairs(), "itemknn", neighbours=2000), graph=of_keys(60, 150_000))
    with pytest.raises(Invalid, match=r"weights take 2\.4 GB, .* choose fewer neighbours or a larger min_count"):
        ItemKnn().train(given)
