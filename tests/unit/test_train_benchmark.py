"""The training benchmark: its cases, what its contenders make of the same batches, and its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import train, train_cases
from benchmarks.train_cases import LikesCase
from benchmarks.train_contenders import CONTENDERS, read_case, write_case
from benchmarks.train_machine import Limits
from pipelines.models.tables import Table

LIMITS = Limits({f"{one} {kind}": 1e11 for one in (*train.FRAMEWORKS, "jax") for kind in ("float32", "bfloat16")}, 1e10)


def test_a_case_is_written_and_read_and_its_batches_are_the_same_ones(tmp_path: Path) -> None:
    case = train_cases.movielens(64)
    again = read_case(write_case(case, tmp_path / "case.json"))
    assert again == case
    for one, other in zip(case.batches(2), again.batches(2), strict=True):
        assert all((one.columns[name] == other.columns[name]).all() for name in one.columns) and 0 < one.labels.mean() < 1
        for table in case.tables:
            assert one.columns[table.column].max() < table.cardinality
        assert (one.columns["genres"][:, 0] > 0).all() and (one.columns["genres"] == 0).any()


def test_every_part_names_contenders_that_there_are() -> None:
    for turns in train._parts(64).values():
        assert turns and all(name in CONTENDERS for _, names in turns for name in names)


def test_a_step_of_likes_holds_what_its_users_liked(tmp_path: Path) -> None:
    case = LikesCase("small", 60, 40, 8, 4)
    assert read_case(write_case(case, tmp_path / "case.json")) == case
    pairs = case.pairs()
    assert len(pairs) == 60 * 8 and len(np.unique(np.stack([pairs.users, pairs.items]), axis=1).T) == len(pairs)
    for users, shares in case.batches(2):
        for user, row in zip(users, shares, strict=True):
            assert sorted(np.flatnonzero(row)) == sorted(pairs.items[pairs.users == user])
            assert row.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["eyas in numpy", "keras: rows of likes"])
def test_a_contender_of_likes_learns(name: str) -> None:
    case = LikesCase("small", 240, 60, 10, 8)
    seconds, losses = CONTENDERS[name].train(case, list(case.batches(4)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]


@pytest.mark.parametrize("name", ["eyas on tensorflow", "keras: model.fit"])
def test_a_contender_learns_by_product_and_layers(name: str) -> None:
    case = replace(train_cases.neumf(256), tables=tuple(Table(one, 200, 12, None) for one in ("user", "item")), layers=(8, 4), product=4)
    seconds, losses = CONTENDERS[name].train(case, list(case.batches(2)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]


@pytest.mark.requirement("L-04")
@pytest.mark.parametrize("name", ["eyas on tensorflow", "eyas on tensorflow, tables apart", "keras: model.fit"])
def test_a_contender_learns(name: str) -> None:
    case = train_cases.grown(256, 1, 200)
    seconds, losses = CONTENDERS[name].train(case, list(case.batches(2)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]


def test_the_table_says_what_share_of_the_machines_limit_a_step_reaches() -> None:
    case, names = train._parts(64)["families"][0]
    run = {"seconds": 0.01, "first": 0.7, "last": 0.6, "rows": case.rows, "flops": case.flops, "bytes": case.bytes}
    rows = train.table({(case.name, name): [run, run] for name in names}, LIMITS)
    shares = [row for row in rows if row.metric == "of the limit"]
    expected = 100 * 64 * (case.flops / 1e11 + case.bytes / 1e10) / 0.01
    assert len(shares) == len(names) and all(row.values == pytest.approx([expected] * 2) for row in shares)
    assert {row.ratio_to["keras: model.fit"] for row in rows if row.metric == "throughput" and row.contender in train.OURS} == {1.0}
