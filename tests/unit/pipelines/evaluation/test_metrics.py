"""Metrics against cases that were worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.cases import Cases, UserCases, sample_cases, sampled_negatives
from pipelines.evaluation.judge import Labelled, judge
from pipelines.evaluation.metrics import auc, middle_rank
from shared.domain.errors import BadData

ITEMS = 40
NAMES = ("hr@1", "hr@2", "hr@10", "ndcg@10", "hr@10/20", "ndcg@10/20")


def _judge(cases: Cases, score: Callable[[Any, Any], Any]) -> dict[str, float]:
    labelled = Labelled(np.array([1, 1]), np.array([0, 1]), np.array([1, 1], np.int8))
    return judge(score, cases, {20: sampled_negatives(cases, 20, seed=1)}, labelled).values(NAMES)


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


def test_ties_share_the_middle_rank() -> None:
    assert middle_rank(1.0, np.array([2.0, 1.0, 1.0, 0.0])) == 3.0


def test_a_score_that_is_no_number_is_an_error() -> None:
    with pytest.raises(BadData, match="no numbers: 40 of 40 scores are NaN or infinite"):
        _judge(_cases(_one([0], [0])), lambda users, rows: np.full(len(rows), np.nan))


def test_sampled_negatives_are_never_items_that_the_user_touched() -> None:
    touched = list(range(10, 25))
    cases = _cases(_one([0, 1], [0, 1, 2], touched), UserCases(2, np.array([5]), np.array([5]), np.array([5])))
    drawn = sampled_negatives(cases, 20, seed=3)
    assert all(len(set(rows)) == 20 for user in drawn for rows in user)
    assert not {int(row) for rows in drawn[0] for row in rows} & {0, 1, 2, *touched}
    assert all(np.array_equal(a, b) for a, b in zip(drawn[0], sampled_negatives(cases, 20, seed=3)[0], strict=True))


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
