"""What families train on, made of pairs alone; and models that score the whole catalogue at once."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.models.families import FAMILIES
from pipelines.models.family import ScoresAll
from pipelines.trials.task import prepare
from shared.contracts.models import Model
from shared.domain.errors import BadData
from tests.support.taste_table import likes

LOG = logging.getLogger("test")


def test_what_is_prepared_is_what_families_take(tmp_path: Path) -> None:
    pairs = likes()
    task = prepare(pairs, Model(family="mf"), "keys", tmp_path / "task", LOG)
    rows = pl.read_parquet(task.rows)
    assert rows.select("user", "item").sort("user", "item").equals(pairs.sort("user", "item"))
    assert (rows["label"] == 1).all()
    assert rows["time"].is_sorted()
    items = pairs["item"].unique().sort()
    assert items[rows["item_row"]].to_list() == rows["item"].to_list()
    assert task.graph.key("user").state.coded(rows["user"]).tolist() == rows["user_code"].to_list()
    counts = pairs["item"].value_counts().sort("item")["count"].to_list()
    assert task.popularity.scores.tolist() == counts
    assert task.popularity.items.tolist() == items.to_list()


def test_rows_with_times_stand_by_them_and_labels_are_kept(tmp_path: Path) -> None:
    pairs = pl.DataFrame({"user": [1, 2, 1], "item": [5, 6, 6], "time": [3.0, 1.0, 2.0], "label": [1, 0, 1]})
    rows = pl.read_parquet(prepare(pairs, Model(family="mf"), "keys", tmp_path / "t", LOG).rows)
    assert rows.select("user", "item", "time", "label").rows() == [(2, 6, 1.0, 0), (1, 6, 2.0, 1), (1, 5, 3.0, 1)]


@pytest.mark.parametrize("family", ["popularity", "mf"])
def test_scoring_all_at_once_says_what_pairs_say(family: str, tmp_path: Path) -> None:
    task = prepare(likes(), Model(family=family), FAMILIES[family].reads, tmp_path / "task", LOG)
    model = FAMILIES[family].train(task).model
    assert isinstance(model, ScoresAll)
    users = np.array([0, 1, 2, 7], np.int32)
    every = model.every(users)
    items = np.arange(every.shape[1], dtype=np.int32)
    assert every.shape == (4, task.graph.key("item").state.cardinality)
    for user, row in zip(users, every, strict=True):
        np.testing.assert_allclose(row, model.score({"user": np.full(len(items), user), "item": items}), atol=1e-5)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(1, 2), (1, 3)], "the training data has one user"),
        ([(1, 2), (2, 2)], "the training data has one item"),
        ([], "the training data has no user"),
    ],
)
def test_from_one_user_or_item_nothing_is_learned(pairs: list[tuple[int, int]], said: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(pairs, schema={"user": pl.Int64, "item": pl.Int64}, orient="row")
    with pytest.raises(BadData, match=said):
        prepare(frame, Model(family="mf"), "keys", tmp_path, LOG)
