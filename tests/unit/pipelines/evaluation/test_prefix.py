"""Two models of which one was asked about the first users alone: each has its own figures, and they are compared on what both have."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.evaluation.cases import Cases, UserCases, drawn_negatives
from pipelines.evaluation.gate_metrics import Evidence, certainties
from pipelines.evaluation.intervals import difference, intervals
from pipelines.evaluation.judge import Labelled, ModelEvaluation, judge, sliced
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.report import Contender, ReportContents, Run, document
from pipelines.evaluation.slices import Slice

USERS, FIRST, ITEMS = 90, 40, 60
NAMES = ("hr@10", "ndcg@10", "hr@10/20", "map@10", "auc/20")
RANDOM = np.random.default_rng(4)
TARGETS = [RANDOM.choice(ITEMS, 1 + user % 3, replace=False) for user in range(USERS)]
CASES = Cases(tuple(UserCases(user, rows, rows, rows) for user, rows in enumerate(TARGETS)), 500, ITEMS)
SCORES = {name: RANDOM.random((USERS, ITEMS)).astype(np.float32) for name in ("candidate", "popularity")}
LATE = Slice("late", "users of whom one model knows nothing", CASES.owners >= FIRST)
EVEN = Slice("even", "every other user", CASES.owners % 2 == 0)
LABELLED = Labelled(np.arange(4), np.arange(4), np.array([1, 1, 0, 0], np.int8))


def judged(name: str, users: int) -> ModelEvaluation:
    cases = CASES.first(users)
    scores = SCORES[name]
    return judge(lambda of, rows: scores[of, rows], cases, {20: drawn_negatives(cases, 20, 1)}, every=lambda of: scores[of])


def test_slices_are_of_the_users_that_were_ranked() -> None:
    few, all_ = judged("candidate", FIRST), judged("candidate", USERS)
    assert set(sliced(few, NAMES, (LATE, EVEN))) == {f"{name}{{even}}" for name in ("hr@10", "ndcg@10", "hr@10/20")}
    assert sliced(all_.first(FIRST), NAMES, (LATE, EVEN)) == sliced(few, NAMES, (LATE, EVEN)) != sliced(all_, NAMES, (EVEN,))
    assert few.first(FIRST).ranked is few.ranked and few.values(NAMES) != all_.values(NAMES)


def test_the_report_compares_both_on_the_users_that_both_have() -> None:
    few, all_ = judged("candidate", FIRST), judged("popularity", USERS)
    wanted = ReportContents(NAMES, ("hr@10", "ndcg@10"), (LATE, EVEN), 1)
    found = document([Contender("popularity", (Run(all_),)), Contender("candidate", (Run(few),))], "popularity", wanted, {})
    mine, theirs = found["models"]["candidate"], found["models"]["popularity"]
    assert (mine["users"], mine["cases"]) == (FIRST, CASES.first(FIRST).count) and (theirs["users"], theirs["cases"]) == (
        USERS,
        CASES.count,
    )
    paired = (observe(one.ranked, ["hr@10"])["hr@10"].first(FIRST) for one in (few, all_))
    apart = difference(*paired)
    assert (
        mine["against_baseline"]["hr@10"]["difference"]
        == apart.mean
        == pytest.approx(few.values(["hr@10"])["hr@10"] - all_.first(FIRST).values(["hr@10"])["hr@10"])
    )
    assert mine["against_baseline"]["hr@10"]["interval"] == intervals({"x": apart}, 1)["x"]
    assert set(mine["slices"]) == {"even"} and set(theirs["slices"]) == {"late", "even"}
    assert mine["slices"]["even"]["users"] == FIRST / 2


def test_how_sure_a_difference_is_follows_from_the_users_that_both_have() -> None:
    few, all_ = judged("candidate", FIRST), judged("popularity", USERS)
    names = ["hr@10", "hr@10{late}"]
    found, missing = certainties(names, Evidence({"candidate": few, "popularity": all_}, (LATE, EVEN), LABELLED))
    equal, _ = certainties(["hr@10"], Evidence({name: judged(name, FIRST) for name in SCORES}, (), LABELLED))
    assert found["candidate.hr@10.se_to.popularity"] == pytest.approx(equal["candidate.hr@10.se_to.popularity"])
    assert found["candidate.hr@10.se"] == equal["candidate.hr@10.se"]
    assert found["popularity.hr@10.on.candidate.se"] == pytest.approx(equal["popularity.hr@10.se"])
    assert (found["candidate.hr@10.users"], found["popularity.hr@10.users"]) == (FIRST, USERS)
    assert missing["candidate.hr@10{late}.se"] == "the holdout has no case of late"
