"""How sure each metric that a gate asks for is: by contender, by slice, and why some metrics have no certainty."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.evaluation.gate_metrics import Evidence, certainties, unmeasured
from pipelines.evaluation.judge import Labelled, ModelEvaluation
from pipelines.evaluation.per_user import PerUser
from pipelines.evaluation.ranking import SHOWN, CaseRanks
from pipelines.evaluation.slices import Slice

USERS = 40
HITS = np.arange(USERS) % 4 == 0
LABELLED = Labelled(np.repeat(np.arange(USERS), 2), np.zeros(2 * USERS, np.int64), np.tile(np.array([1, 0], np.int8), USERS))
HALF = Slice("first_half", "the first 20 users", np.arange(USERS) < 20)
NOBODY = Slice("nobody", "no user", np.zeros(USERS, bool))


def judgement(hits: np.ndarray, scores: np.ndarray | None = None) -> ModelEvaluation:
    """One case a user: its item stands first where the user has a hit, and is not among ten otherwise."""
    ranks, users = np.where(hits, 1.0, 50.0), len(hits)
    shown = np.zeros((users, SHOWN), np.int32)
    ranked = CaseRanks(np.arange(users), ranks, np.full(users, 100), ranks, {}, {}, shown, np.zeros(users, bool))
    return ModelEvaluation(ranked, {}, None if scores is None else 0.5, None, scores)


def evidence(**judged: ModelEvaluation) -> Evidence:
    return Evidence(judged, [], LABELLED)


def test_the_error_of_a_mean_is_that_of_its_users_and_one_contrary_case() -> None:
    metrics, missing = certainties(["hr@10"], evidence(candidate=judgement(HITS), popularity=judgement(~HITS)))
    moved = (HITS - HITS.mean()) / USERS
    own = np.sqrt((moved**2).sum() * USERS / (USERS - 1) + 1 / USERS**2)
    difference = np.sqrt(((2 * moved) ** 2).sum() * USERS / (USERS - 1) + 1 / USERS**2)
    assert missing == {}
    assert metrics == {
        "candidate.hr@10.se": pytest.approx(own),
        "popularity.hr@10.se": pytest.approx(own),
        "candidate.hr@10.se_to.popularity": pytest.approx(difference),
        "candidate.hr@10.users": USERS,
        "popularity.hr@10.users": USERS,
    }


def test_contenders_are_compared_on_the_first_users_that_both_were_judged_on() -> None:
    """The candidate hits for the first 30 users as the serving version does, and never after: on these they are equal."""
    few = HITS[:32]
    longer = np.where(np.arange(USERS) < 32, HITS, True)
    metrics, missing = certainties(["hr@10"], evidence(candidate=judgement(longer), serving=judgement(few)))
    assert missing == {}
    assert (metrics["candidate.hr@10.users"], metrics["serving.hr@10.users"]) == (USERS, 32)
    assert (metrics["candidate.hr@10.on.serving"], metrics["candidate.hr@10.on.serving.users"]) == (few.mean(), 32)
    assert metrics["candidate.hr@10.on.serving.se"] == metrics["serving.hr@10.se"]
    assert metrics["candidate.hr@10.se_to.serving"] == pytest.approx(1 / 32), "one contrary case"
    assert "serving.hr@10.on.candidate" not in metrics
    turned, _ = certainties(["hr@10"], evidence(candidate=judgement(few), serving=judgement(longer)))
    assert turned["serving.hr@10.on.candidate"] == few.mean()
    assert "candidate.hr@10.on.serving" not in turned
    assert turned["candidate.hr@10.se_to.serving"] == pytest.approx(1 / 32)


def test_recall_is_as_sure_as_the_cases_whose_item_was_retrieved() -> None:
    per_user = {"candidate": PerUser(np.arange(USERS), HITS.astype(float)), "popularity": PerUser(np.arange(USERS), (~HITS).astype(float))}
    judged = {name: judgement(HITS) for name in ("candidate", "popularity", "serving")}
    metrics, missing = certainties(["recall@500"], Evidence(judged, [], LABELLED, per_user))
    by_rank, _ = certainties(["hr@10"], evidence(candidate=judgement(HITS), popularity=judgement(~HITS)))
    assert metrics == {name.replace("hr@10", "recall@500"): value for name, value in by_rank.items()}
    assert missing == {"serving.recall@500.se": "the model has no vectors of users and items"}


def test_auc_is_sure_by_the_labelled_rows_and_without_two_labels_it_says_why() -> None:
    scores = np.linspace(0, 1, 2 * USERS)
    metrics, missing = certainties(["auc"], evidence(candidate=judgement(HITS, scores), popularity=judgement(HITS)))
    assert metrics.keys() == {"candidate.auc.se", "candidate.auc.users"}
    assert 0 < metrics["candidate.auc.se"] < 0.2
    assert list(missing.values()) == ["all holdout rows have the same label"]
    assert "popularity" in next(iter(missing))


def test_a_slice_without_a_case_or_with_few_users_has_no_certainty() -> None:
    names = ["hr@10{nobody}", "hr@10{first_half}", "hr@10{unknown}"]
    metrics, missing = certainties(names, Evidence({"candidate": judgement(HITS)}, [HALF, NOBODY], LABELLED))
    assert metrics == {"candidate.hr@10{first_half}.users": 20}
    assert list(missing.values()) == [
        "the holdout has no case of nobody",
        "only 20 users; at least 30 needed",
        "the holdout has no case of unknown",
    ]


def test_a_metric_of_a_slice_that_was_not_measured_is_named_by_contender() -> None:
    values = {"candidate.hr@10{first_half}": 0.5}
    assert unmeasured(["hr@10{first_half}"], ["candidate", "popularity"], values) == {
        "popularity.hr@10{first_half}": "the holdout has no case of first_half"
    }
    assert unmeasured(["auc", "recall@9"], ["candidate"], {}) == {
        "candidate.auc": "all holdout rows have the same label",
        "candidate.recall@9": "the model has no vectors of users and items",
    }


def test_a_slice_whose_cases_lie_behind_the_shared_ones_is_not_compared() -> None:
    """The serving version was judged on the first 8 users, and only later ones are of the slice."""
    later = Slice("later", "the last 32 users", np.arange(USERS) >= 8)
    some = Slice("some", "users 4 to 39", np.arange(USERS) >= 4)
    judged = {"candidate": judgement(HITS), "serving": judgement(HITS[:8])}
    metrics, missing = certainties(["hr@10{later}", "hr@10{some}"], Evidence(judged, [later, some], LABELLED))
    assert np.isfinite(list(metrics.values())).all()
    assert not [name for name in metrics if name.startswith("candidate.hr@10{later}.on.")]
    assert metrics["candidate.hr@10{some}.on.serving.users"] == 4
    assert missing["serving.hr@10{later}.se"] == "the holdout has no case of later"
