"""Negatives as a stage of a loader: so many for each positive, drawn anew, and, where that is asked, none that the user liked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from pipelines.inputs.bloom_filter import LikedItems, read_liked
from pipelines.loaders.columns import Column, ListColumn
from pipelines.loaders.loader import open_loader
from pipelines.loaders.negatives import Negatives
from shared.domain.errors import Invalid

USERS, ITEMS = 30, 40
Array = NDArray[np.int64]


def _random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _likes(share: float) -> tuple[Array, Array]:
    users, items = np.divmod(np.flatnonzero(_random(1).random(USERS * ITEMS) < share), ITEMS)
    return users, items


def _batch(users: Array, items: Array) -> dict[str, Column]:
    return {"user": users, "item_row": items.astype(np.int32)}


@pytest.mark.requirement("N-04")
def test_each_positive_gets_its_negatives_with_all_that_is_of_its_row() -> None:
    liked = _random().random(500) < 0.3
    batch: dict[str, Column] = {
        "user": np.arange(500),
        "item_row": _random().integers(0, ITEMS, 500, dtype=np.int32),
        "label": liked.astype(np.int8),
        "wide": np.repeat(np.arange(500), 3).reshape(500, 3),
        "some": ListColumn(np.repeat(np.arange(500), np.arange(500) % 4), np.append(0, np.cumsum(np.arange(500) % 4))),
    }
    found = Negatives(ITEMS, 3)(batch, _random())
    users, labels, some = found["user"], found["label"], found["some"]
    assert isinstance(users, np.ndarray) and isinstance(labels, np.ndarray) and isinstance(some, ListColumn)
    assert labels.dtype == np.float32 and labels.sum() == liked.sum()
    np.testing.assert_array_equal(np.bincount(users), 1 + 3 * liked)
    np.testing.assert_array_equal(found["wide"], np.repeat(users, 3).reshape(-1, 3))
    np.testing.assert_array_equal(some.lengths, users % 4)
    np.testing.assert_array_equal(some.values, np.repeat(users, users % 4))
    assert isinstance(found["item_row"], np.ndarray) and set(found["item_row"].tolist()) == set(range(ITEMS))
    # A part of the batch is as good as the whole: labels are spread over it.
    assert abs(labels[: len(labels) // 2].sum() - labels.sum() / 2) < 5 * np.sqrt(len(labels))


@pytest.mark.parametrize("share", [None, 0.3, 1.0])
def test_negatives_come_from_the_items_that_can_be_drawn_alone(share: float | None) -> None:
    drawable = np.arange(0, ITEMS, 2)
    users, items = _likes(share or 0.3)
    even = items % 2 == 0
    liked = None if share is None else LikedItems.of([(users[even], items[even])])
    batch = Negatives(ITEMS, 5, liked=liked, drawable=drawable)(_batch(users[even], items[even]), _random())
    labels, drawn = batch["label"], batch["item_row"]
    assert isinstance(labels, np.ndarray) and isinstance(drawn, np.ndarray)
    negatives = drawn[labels == 0]
    assert set(negatives.tolist()) == (set() if share == 1.0 else set(drawable.tolist()))


def test_where_all_rows_are_positives_a_batch_is_filled_to_the_row(tmp_path: Path) -> None:
    pl.DataFrame({"user": range(1000), "item_row": [0] * 1000}).write_parquet(tmp_path / "likes.parquet")
    loader = open_loader(tmp_path / "likes.parquet", batch_size=500 // 5, stages=(Negatives(ITEMS, 4),))
    sizes = [(len(batch["label"]), int(np.sum(batch["label"]))) for batch in loader.epoch(0)]
    assert sizes == [(500, 100)] * 10


@pytest.mark.requirement("N-04")
def test_negatives_are_drawn_anew_in_every_epoch_and_the_same_by_any_number_of_threads(tmp_path: Path) -> None:
    pl.DataFrame({"user": range(3000), "item_row": [0] * 3000}).write_parquet(tmp_path / "likes.parquet", row_group_size=200)
    drawn = {}
    for epoch, threads in ((0, 1), (0, 4), (1, 2)):
        loader = open_loader(tmp_path / "likes.parquet", batch_size=100, threads=threads, stages=(Negatives(ITEMS, 2),))
        rows = {name: np.concatenate([batch[name] for batch in loader.epoch(epoch)]) for name in ("user", "item_row", "label")}
        order = np.lexsort((rows["item_row"], rows["user"]))
        drawn[epoch, threads] = rows["item_row"][order][rows["label"][order] == 0]
    np.testing.assert_array_equal(drawn[0, 1], drawn[0, 4])
    assert (drawn[0, 1] != drawn[1, 2]).mean() > 0.5


@pytest.mark.requirement("N-04")
@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_verified_negatives_are_none_that_the_user_liked_however_much_that_is(share: float) -> None:
    users, items = _likes(share)
    known = set(zip(users.tolist(), items.tolist(), strict=True))
    unverified, verified = (
        Negatives(ITEMS, 4, liked=liked)(_batch(users, items), _random()) for liked in (None, LikedItems.of([(users, items)]))
    )
    for found, wrong in ((unverified, True), (verified, False)):
        assert isinstance(found["label"], np.ndarray) and len(found["label"]) == 5 * len(users)
        assert isinstance(found["user"], np.ndarray) and isinstance(found["item_row"], np.ndarray)
        negative = found["label"] == 0
        drawn = zip(found["user"][negative].tolist(), found["item_row"][negative].tolist(), strict=True)
        assert (not known.isdisjoint(drawn)) == wrong


def test_who_liked_everything_has_no_negative_and_each_positive_stands_in_its_places() -> None:
    users, items = np.repeat([0, 1], [ITEMS, 1]), np.append(np.arange(ITEMS), 7)
    batch = Negatives(ITEMS, 4, liked=LikedItems.of([(users, items)]))(_batch(users, items), _random())
    assert isinstance(batch["user"], np.ndarray) and isinstance(batch["item_row"], np.ndarray) and isinstance(batch["label"], np.ndarray)
    theirs = batch["user"] == 0
    assert batch["label"][theirs].all()
    np.testing.assert_array_equal(np.bincount(batch["item_row"][theirs]), 5)
    assert sorted(batch["label"][~theirs].tolist()) == [0, 0, 0, 0, 1]


@pytest.mark.requirement("N-04")
def test_what_was_liked_is_always_found_and_of_the_rest_few() -> None:
    random = _random(4)
    codes = random.choice(10**9, 100_000, replace=False)
    users, items = np.divmod(codes, 10**4)
    liked_items = LikedItems.of([(users[:30_000], items[:30_000]), (users[30_000:50_000], items[30_000:50_000])])
    assert liked_items.size == 2 * 50_000
    assert liked_items(users[:50_000], items[:50_000].astype(np.int32)).all()
    wrong = int(liked_items(users[50_000:], items[50_000:]).sum())
    assert 100 < wrong < 500  # half a per cent of 50,000


def test_a_warm_run_also_knows_what_was_liked_before(tmp_path: Path) -> None:
    train = pl.DataFrame({"user": [7, 7, 8], "item_row": [0, 1, 2], "label": [1, 0, 1]}, schema_overrides={"item_row": pl.Int32})
    train.write_parquet(tmp_path / "train.parquet")
    before = pl.DataFrame({"user": [7, 8, 8, 9], "item": [30, 10, 99, 20], "label": [1, 1, 1, 1], "before": [1, 1, 1, 0]})
    before.write_parquet(tmp_path / "history.parquet")
    keys = np.array([10, 20, 30])
    first, warm = (read_liked(tmp_path / "train.parquet", history, keys) for history in (None, tmp_path / "history.parquet"))
    pairs = np.array([(user, row) for user in (7, 8, 9) for row in range(3)])
    assert [tuple(pair) for pair in pairs[first(pairs[:, 0], pairs[:, 1])]] == [(7, 0), (8, 2)]
    assert [tuple(pair) for pair in pairs[warm(pairs[:, 0], pairs[:, 1])]] == [(7, 0), (7, 2), (8, 0), (8, 2)]


def test_a_column_that_is_not_there_is_named_beside_those_that_are() -> None:
    with pytest.raises(Invalid, match=r"'item_row' is not a column with one value per row; set item=, user= and label= .* \(user, film\)"):
        Negatives(ITEMS, 4)({"user": np.arange(3), "film": np.arange(3), "wide": np.zeros((3, 2))}, _random())
