"""Metrics against cases that were worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.cases import ABSENT, Cases, UserCases, count_short, drawn_negatives, sample_cases
from pipelines.evaluation.judge import Labelled, judge
from pipelines.evaluation.metrics import auc
from shared.domain.errors import BadData

ITEMS = 40
NAMES = ("hr@1", "hr@2", "hr@10", "ndcg@10", "hr@10/20", "ndcg@10/20")


def _judge(cases: Cases, score: Callable[[Any, Any], Any]) -> dict[str, float]:
    labelled = Labelled(np.array([1, 1]), np.array([0, 1]), np.array([1, 1], np.int8))
    return judge(score, cases, {20: drawn_negatives(cases, 20, seed=1)}, labelled).values(NAMES)


def _cases(*users: UserCases) -> Cases:
    return Cases(users, sum(len(one.targets) for one in users), ITEMS)


def _one(targets: list[int], liked: list[int], touched: list[int] | None = None) -> UserCases:
    return UserCases(1, np.array(targets), np.array(liked), np.array(liked + (touched or [])))


@pytest.mark.requirement("N-08")
def test_full_and_sampled_ranks_are_reported_side_by_side() -> None:
    # The score falls with the row: row 3 is behind 0, 1 and 2, of which the user likes 0: rank 3.
    found = _judge(_cases(_one([3], [0, 3])), lambda users, rows: -rows.astype(float))
    assert (found["hr@1"], found["hr@2"], found["hr@10"]) == (0, 0, 1)
    assert found["ndcg@10"] == pytest.approx(1 / log2(3 + 1))
    assert found["hr@10/20"] == 1


def test_a_users_other_held_out_positives_do_not_stand_in_the_way() -> None:
    found = _judge(_cases(_one([0, 1], [0, 1])), lambda users, rows: -rows.astype(float))
    assert found["hr@1"] == 1


def test_a_constant_scorer_earns_nothing() -> None:
    found = _judge(_cases(_one([0], [0])), lambda users, rows: np.zeros(len(rows)))
    assert found["hr@10"] == found["hr@10/20"] == found["ndcg@10"] == 0
    assert "auc" not in found


def test_a_score_that_is_no_number_is_an_error() -> None:
    with pytest.raises(BadData, match="model scores are not finite: 40 of 40 are NaN or infinite"):
        _judge(_cases(_one([0], [0])), lambda users, rows: np.full(len(rows), np.nan))


def test_sampled_negatives_are_never_items_that_the_user_touched() -> None:
    random = np.random.default_rng(5)
    some = [random.choice(300, 200, replace=False) for _ in range(8)]
    cases = Cases(tuple(UserCases(user, rows[:3], rows[:50], rows[:120]) for user, rows in enumerate(some)), 24, 300)
    found = drawn_negatives(cases, 99, seed=3)(0, 8)
    for rows, owner in zip(found, cases.owners, strict=True):
        assert len(set(rows.tolist())) == 99
        assert not set(rows.tolist()) & set(some[owner][:120].tolist())


def test_each_item_that_the_user_never_touched_is_drawn_as_often_as_any_other() -> None:
    """9,000 cases of one user: 20 of 60 free items each, so 3,000 draws of each; within five deviations of that share."""
    cases = Cases((UserCases(1, np.full(9_000, 3), np.array([3]), np.arange(0, 80, 2)),), 9_000, 101)
    found = drawn_negatives(cases, 20, seed=1)(0, 1)
    rows, counts = np.unique(found, return_counts=True)
    assert rows.tolist() == sorted({*range(1, 80, 2), *range(80, 101)} - {3})
    assert np.abs(counts - 3_000).max() < 5 * (9_000 * (1 / 3) * (2 / 3)) ** 0.5


def test_where_fewer_items_are_left_all_of_them_are_drawn() -> None:
    cases = Cases((_one([0, 1], [0, 1, 2], list(range(3, 25))), _one([-1], [])), 3, ITEMS)
    found = drawn_negatives(cases, 20, seed=3)(0, 2)
    assert [sorted(rows[rows != ABSENT].tolist()) for rows in found[:2]] == [list(range(25, ITEMS))] * 2
    assert (found[2] != ABSENT).all() and (count_short(cases, 20), count_short(cases, 15)) == (2, 0)


def test_negatives_are_the_same_for_every_contender_and_every_prefix() -> None:
    users = tuple(UserCases(user, np.array([user]), np.array([user]), np.array([user])) for user in (7, -3, 12))
    draw, fewer = drawn_negatives(Cases(users, 3, ITEMS), 9, seed=2), drawn_negatives(Cases(users[:2], 3, ITEMS), 9, seed=2)
    np.testing.assert_array_equal(draw(0, 3)[1:2], fewer(1, 2))
    assert not np.array_equal(draw(0, 1), draw(1, 2))
    assert not np.array_equal(draw(0, 1), drawn_negatives(Cases(users, 3, ITEMS), 9, seed=3)(0, 1))


def test_auc_counts_ties_half_and_needs_both_labels() -> None:
    assert auc(np.array([1, 0, 1, 0]), np.array([0.9, 0.5, 0.5, 0.1])) == pytest.approx(3.5 / 4)
    assert auc(np.array([1, 0, 1, 0]), np.zeros(4)) == pytest.approx(0.5)
    assert auc(np.array([1, 1]), np.array([0.1, 0.2])) is None


@pytest.mark.parametrize(("keep_seen", "targets"), [(False, {1: [2]}), (True, {1: [0, 2], 2: [1]})])
def test_a_case_is_a_new_positive_unless_seen_items_are_kept(keep_seen: bool, targets: dict[int, list[int]]) -> None:
    holdout = pl.LazyFrame({"user": [1, 1, 2, 2], "item": [10, 30, 20, 10], "label": [1, 1, 1, 0]})
    history = pl.LazyFrame({"user": [1, 1, 2, 2], "item": [10, 30, 20, 10], "label": [1, 1, 1, 0], "before": [1, 0, 1, 0]})
    cases = sample_cases(holdout, history, pl.Series([10, 20, 30]), keep_seen, seed=1)
    assert {one.user: sorted(one.targets.tolist()) for one in cases.users} == targets
    assert all(set(one.liked) <= set(one.touched) for one in cases.users)


def _holdout(users: int) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Of user `n` the items 0 to `n % 5`, one of them known before; the last user has none that is new."""
    pairs = [(user, item) for user in range(users) for item in range(user % 5 + 1)]
    frame = pl.LazyFrame(pairs, schema=["user", "item"], orient="row").with_columns(label=pl.lit(1, pl.Int8))
    return frame, frame.with_columns(before=(pl.col("item") == 0).cast(pl.Int8))


def test_a_sample_is_of_users_with_all_of_their_cases() -> None:
    holdout, history = _holdout(100)
    whole = sample_cases(holdout, history, pl.Series(range(5)), False, seed=1)
    some = sample_cases(holdout, history, pl.Series(range(5)), False, seed=1, limit=30)
    assert len(whole.users) == 80 and whole.positives == some.positives == whole.count == 200
    assert [one.user for one in some.users] == [one.user for one in whole.users[:30]] != sorted(one.user for one in whole.users[:30])
    for one in whole.users:
        assert one.targets.tolist() == list(range(1, one.user % 5 + 1)) and sorted(one.touched.tolist()) == list(range(one.user % 5 + 1))
    assert [one.user for one in some.first(7).users] == [one.user for one in whole.users[:7]]


def test_users_are_drawn_evenly_however_many_cases_they_have() -> None:
    """Of 80 users with 1 to 4 cases ten at a time: users with four are not drawn more often than users with one."""
    holdout, history = _holdout(100)
    drawn = [len(one.targets) for seed in range(60) for one in sample_cases(holdout, history, pl.Series(range(5)), False, seed, 10).users]
    counts = np.bincount(drawn, minlength=5)[1:]
    assert np.abs(counts - 150).max() < 5 * (600 * 0.25 * 0.75) ** 0.5
