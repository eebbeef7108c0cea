"""How sure each metric that a gate asks for is: by contender, by slice, and why some metrics have no certainty."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.evaluation.gated import certainties, unmeasured
from pipelines.evaluation.judge import Judgement, Labelled
from pipelines.evaluation.ranking import SHOWN, Ranked
from pipelines.evaluation.slices import Slice

USERS = 40
HITS = np.arange(USERS) % 4 == 0
LABELLED = Labelled(np.repeat(np.arange(USERS), 2), np.zeros(2 * USERS, np.int64), np.tile(np.array([1, 0], np.int8), USERS))
HALF = Slice("first_half", "the first 20 users", np.arange(USERS) < 20)
NOBODY = Slice("nobody", "no user", np.zeros(USERS, bool))


def judgement(hits: np.ndarray, scores: np.ndarray | None = None) -> Judgement:
    """One case a user: its item stands first where the user has a hit, and is not among ten otherwise."""
    ranks = np.where(hits, 1.0, 50.0)
    shown = np.zeros((USERS, SHOWN), np.int32)
    ranked = Ranked(np.arange(USERS), ranks, np.full(USERS, 100), ranks, {}, {}, shown, np.zeros(USERS, bool))
    return Judgement(ranked, {}, None if scores is None else 0.5, None, scores)


def test_the_error_of_a_mean_is_that_of_its_users_and_one_contrary_case() -> None:
    metrics, missing = certainties(["hr@10"], {"candidate": judgement(HITS), "popularity": judgement(~HITS)}, [], LABELLED)
    moved = (HITS - HITS.mean()) / USERS
    own = np.sqrt((moved**2).sum() * USERS / (USERS - 1) + 1 / USERS**2)
    difference = np.sqrt(((2 * moved) ** 2).sum() * USERS / (USERS - 1) + 1 / USERS**2)
    assert missing == {}
    assert sorted(metrics.values()) == pytest.approx([own, own, difference, difference])
    assert all("hr@10" in name for name in metrics)


def test_auc_is_sure_by_the_labelled_rows_and_without_two_labels_it_says_why() -> None:
    scores = np.linspace(0, 1, 2 * USERS)
    metrics, missing = certainties(["auc"], {"candidate": judgement(HITS, scores), "popularity": judgement(HITS)}, [], LABELLED)
    assert len(metrics) == 1
    assert 0 < metrics.popitem()[1] < 0.2
    assert list(missing.values()) == ["the holdout has rows of one label alone"]
    assert "popularity" in next(iter(missing))


def test_a_slice_without_a_case_or_with_few_users_has_no_certainty() -> None:
    names = ["hr@10{nobody}", "hr@10{first_half}", "hr@10{unknown}"]
    metrics, missing = certainties(names, {"candidate": judgement(HITS)}, [HALF, NOBODY], LABELLED)
    assert metrics == {}
    assert list(missing.values()) == [
        "the holdout has no case of nobody",
        "it rests on 20 users; 30 are needed",
        "the holdout has no case of unknown",
    ]


def test_a_metric_of_a_slice_that_was_not_measured_is_named_by_contender() -> None:
    values = {"candidate.hr@10{first_half}": 0.5}
    assert unmeasured(["hr@10{first_half}", "hr@10"], ["candidate", "popularity"], values) == {
        "popularity.hr@10{first_half}": "the holdout has no case of first_half"
    }
