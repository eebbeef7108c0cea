"""The training benchmark: its cases, their batches, and its table."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import train, train_cases
from benchmarks.train_cases import LikesCase
from benchmarks.train_contenders import CASE, CONTENDERS

LIMITS = {f"{name} {kind}": 1e11 for name in (*train.FRAMEWORKS, "jax") for kind in ("float32", "bfloat16")} | {"bandwidth": 1e10}


def test_a_case_is_written_and_read_and_its_batches_are_the_same_ones() -> None:
    case = train_cases.movielens(64)
    again = CASE.validate_json(CASE.dump_json(case))
    assert again == case
    for batch, other in zip(case.batches(2), again.batches(2), strict=True):
        assert all((batch.columns[name] == other.columns[name]).all() for name in batch.columns) and 0 < batch.labels.mean() < 1
        for table in case.tables:
            assert batch.columns[table.column].max() < table.cardinality
        assert (batch.columns["genres"][:, 0] > 0).all() and (batch.columns["genres"] == 0).any()


def test_every_part_names_contenders_that_there_are() -> None:
    for turns in train._parts(64).values():
        assert turns and all(name in CONTENDERS for _, names in turns for name in names)


def test_a_step_of_likes_holds_what_its_users_liked() -> None:
    case = LikesCase("small", 60, 40, 8, 4)
    assert CASE.validate_json(CASE.dump_json(case)) == case
    pairs = case.pairs()
    assert len(pairs) == 60 * 8 and len(np.unique(np.stack([pairs.users, pairs.items]), axis=1).T) == len(pairs)
    for users, shares in case.batches(2):
        for user, row in zip(users, shares, strict=True):
            assert sorted(np.flatnonzero(row)) == sorted(pairs.items[pairs.users == user])
            assert row.sum() == pytest.approx(1)


def test_the_table_says_what_share_of_the_machines_limit_a_step_reaches() -> None:
    case, names = train._parts(64)["families"][0]
    run = {"seconds": 0.01, "first": 0.7, "last": 0.6}
    rows = list(train.table(case, {name: [run, run] for name in names}, LIMITS))
    shares = [row for row in rows if row.metric == "of the limit"]
    expected = 100 * 64 * (case.flops / 1e11 + case.bytes / 1e10) / 0.01
    assert len(shares) == len(names) and all(row.values == pytest.approx([expected] * 2) for row in shares)
    assert {row.ratio_to["keras: model.fit"] for row in rows if row.metric == "throughput" and row.contender in train.OURS} == {1.0}


def test_the_contender_in_numpy_learns() -> None:
    case = LikesCase("small", 240, 60, 10, 8)
    seconds, losses = CONTENDERS["eyas in numpy"].train(case, list(case.batches(4)), 60)
    assert seconds > 0 and np.mean(losses[-2:]) < losses[0]
