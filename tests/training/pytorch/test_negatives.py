"""Negatives that are drawn where the model is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.loaders.loader import open_loader
from pipelines.loaders.negatives import Negatives
from shared.domain.errors import Invalid
from tests.support.torch_available import torch as installed

torch = installed()

from pipelines.loaders.adapters.pytorch.negatives import Gather, TensorLiked, TensorNegatives  # noqa: E402


def seeded(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


@pytest.mark.requirement("N-04")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 6)), max_size=40))
def test_what_nobody_liked_is_drawn_and_all_of_it(pairs: list[tuple[int, int]]) -> None:
    """Against sets, of users that liked nothing, something, or everything."""
    users, items = (np.array([one[at] for one in pairs], np.int64) for at in (0, 1))
    liked = TensorLiked.of(users, items, 7)
    asked = torch.arange(-7, 8).repeat_interleave(300)
    drawn, there = liked.others(asked, seeded())
    for user in range(-7, 8):
        free = set(range(7)) - {item for one, item in pairs if one == user}
        mine = asked == user
        assert there[mine].all() == bool(free)
        if free:
            assert set(drawn[mine].tolist()) == free


@pytest.mark.requirement("N-04")
def test_all_that_a_user_did_not_like_is_equally_likely() -> None:
    draws, catalogue, known = 200_000, 20, [0, 1, 5, 6, 7, 19]
    drawn, _ = TensorLiked.of([3] * 6, known, catalogue).others(torch.full((draws,), 3), seeded())
    counts = torch.bincount(drawn, minlength=catalogue)
    assert counts[known].sum() == 0
    expected = draws / 14
    strayed = (counts[[one for one in range(catalogue) if one not in known]] - expected).abs().max()
    assert float(strayed) < 5 * expected**0.5


@pytest.mark.requirement("N-04")
@pytest.mark.parametrize("verified", [False, True])
def test_each_positive_gets_its_negatives_and_everything_else_of_its_row(verified: bool) -> None:
    rows, items, each = 200, 50, 3
    random = np.random.default_rng(1)
    columns = {
        "user": torch.from_numpy(random.integers(0, 9, rows)),
        "item_row": torch.from_numpy(random.integers(0, items, rows).astype(np.int32)),
        "moment": torch.arange(rows),
        "label": torch.from_numpy((random.random(rows) < 0.6).astype(np.float32)),
    }
    pairs = {(int(user), int(item)) for user, item in zip(columns["user"], columns["item_row"], strict=True)}
    liked = TensorLiked.of(*np.array(sorted(pairs)).T, items) if verified else None
    found = TensorNegatives(items, each, liked=liked)(columns, seeded())
    positives = int(columns["label"].sum())
    assert len(found["label"]) == rows + positives * each
    assert int(found["label"].sum()) == positives
    assert found["item_row"].dtype == torch.int32
    assert torch.equal(found["user"], columns["user"][found["moment"]])
    times = torch.bincount(found["moment"], minlength=rows)
    assert torch.equal(times, 1 + each * columns["label"].long())
    mine = found["item_row"] == columns["item_row"][found["moment"]]
    assert (mine | (found["label"] == 0)).all()
    made = [
        (int(user), int(item))
        for user, item, label, same in zip(found["user"], found["item_row"], found["label"], mine, strict=True)
        if not label and not same
    ]
    assert bool(set(made) & pairs) is not verified
    assert not torch.equal(found["moment"], found["moment"].sort().values)


@pytest.mark.requirement("N-04")
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("verified", [False, True])
def test_the_loaders_own_stage_draws_by_the_same_law(labelled: bool, verified: bool) -> None:
    """How often each user meets each item, with each label, in many batches of both."""
    users, items, catalogue = np.array([0, 0, 0, 1, 2, 2, 2, 2]), np.array([0, 1, 4, 3, 0, 1, 2, 3]), 5
    pairs = set(zip(users.tolist(), items.tolist(), strict=True))
    batch: dict[str, Any] = {"user": users, "item_row": items}
    if labelled:
        batch["label"] = np.array([1, 1, 0, 1, 1, 0, 1, 1], np.float32)
    times = 1500
    many = {name: np.tile(column, times) for name, column in batch.items()}
    liked = np.vectorize(lambda user, item: (user, item) in pairs, otypes=[bool])
    one = Negatives(catalogue, 2, liked=liked if verified else None)(many, np.random.default_rng(0))
    other = TensorNegatives(catalogue, 2, liked=TensorLiked.of(users, items, catalogue) if verified else None)(
        {name: torch.from_numpy(column) for name, column in many.items()}, seeded()
    )
    counts = []
    for found in (one, {name: column.numpy() for name, column in other.items()}):
        cells = np.zeros((3, catalogue, 2))
        np.add.at(cells, (found["user"], found["item_row"], found["label"].astype(int)), 1)
        counts.append(cells)
    assert ((counts[0] == 0) == (counts[1] == 0)).all()
    assert (counts[0][..., 1] == counts[1][..., 1]).all()
    assert (counts[0].sum(1) == counts[1].sum(1)).all()
    assert (abs(counts[0] - counts[1]) <= 5 * np.sqrt(2 * np.maximum(counts[0], 1))).all()


def test_who_liked_everything_has_the_positive_again() -> None:
    columns = {"user": torch.zeros(4, dtype=torch.int64), "item_row": torch.arange(4), "label": torch.ones(4)}
    found = TensorNegatives(4, 2, liked=TensorLiked.of([0] * 4, range(4), 4))(columns, seeded())
    assert found["label"].tolist() == [1.0] * 12
    assert torch.bincount(found["item_row"]).tolist() == [3] * 4


def test_lists_of_any_length_are_refused_and_a_catalogue_that_is_too_small() -> None:
    columns = {
        "item_row": torch.arange(2),
        "label": torch.ones(2),
        "tags__values": torch.arange(5),
        "tags__offsets": torch.tensor([0, 2, 5]),
    }
    with pytest.raises(Invalid, match="negatives: column 'tags__values' does not have one entry per row; set lists='padded'"):
        TensorNegatives(4, 2)(columns, seeded())
    with pytest.raises(Invalid, match="items must be numbers from 0 to 3"):
        TensorLiked.of([1], [4], 4)


@pytest.mark.requirement("N-04")
@pytest.mark.parametrize("resident", [None, 0.9])
def test_epochs_of_a_loader_have_new_negatives_with_their_own_features(tmp_path: Path, resident: float | None) -> None:
    rows, items = 300, 1000
    table = {"user": np.arange(rows) % 7, "item_row": np.arange(rows, dtype=np.int32), "label": np.ones(rows, np.float32)}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet", row_group_size=100)
    price = torch.arange(items) * 0.5

    def epochs() -> list[list[tuple[float, ...]]]:
        stages = [TensorNegatives(items, 4), Gather("item_row", {"price": price})]
        batches = open_loader(tmp_path / "rows.parquet", batch_size=64).as_torch(stages=stages, resident=resident)
        return [
            [
                row
                for columns, label in batches
                for row in zip(*(one.tolist() for one in (columns["item_row"], columns["price"], label)), strict=True)
            ]
            for _ in range(2)
        ]

    first, second = epochs()
    assert epochs() == [first, second]
    for one in (first, second):
        assert len(one) == rows * 5
        assert all(price == item / 2 for item, price, _ in one)
        assert sorted(item for item, _, label in one if label) == list(range(rows))
    assert {item for item, _, label in first if not label} != {item for item, _, label in second if not label}
