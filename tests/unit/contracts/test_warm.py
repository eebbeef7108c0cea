"""What a spec says of warm runs: what has an effect, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.contracts.plans import retrain_plan, run_plan, stage_parts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.domain.gate import Silence, Verdict, judge
from shared.domain.warm_or_full import FullRunLimits


def spec(**changes: Any) -> RecommenderSpec:
    said = {
        "name": "films",
        "data": {"interactions": {"uri": "a.parquet"}, "items": {"uri": "b.parquet", "key": "item"}},
        "schema": {"user": "user", "item": "item", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
        "gates": [{"parity": 1e-4}],
    }
    return read(RecommenderSpec, said | changes, "spec.yaml")


@pytest.mark.requirement("G-09")
def test_a_spec_says_when_auto_is_full() -> None:
    found = spec(retrain={"mode": "auto", "auto": {"grown": "50%", "warm_runs": 3, "forgotten": None, "drift": 1}})
    assert retrain_plan(found).auto == FullRunLimits(0.5, 3, None, 1.0) and retrain_plan(found).chooses
    assert not retrain_plan(spec()).chooses
    assert retrain_plan(spec(retrain={"on": [{"drift": {"mode": "auto"}}]})).chooses
    assert retrain_plan(spec(retrain={"schedule": "@daily", "schedule_mode": "auto"})).chooses


INVALID_WARM_STARTS = [
    ({"retrain": {"auto": {"warm_runs": 3}}}, "'auto' has no effect: no trigger has the mode auto; set mode: auto"),
    (
        {"retrain": {"mode": "auto", "auto": dict.fromkeys(("grown", "warm_runs", "forgotten", "drift"))}},
        "all conditions are off",
    ),
    ({"model": {"family": "mf"}, "retrain": {"warm": {"replay": "50%"}}}, "'replay' has no effect: a warm run of 'mf'"),
    ({"model": {"family": "ease"}, "retrain": {"warm": {"new_rows": "random"}}}, "'new_rows' has no effect: 'ease' keeps no vectors"),
    ({"retrain": {"warm": {"new_rows": "zero"}}}, "expected 'mean', 'unknown' or 'random', got 'zero'"),
    ({"retrain": {"warm": {"replay": "95%"}}}, "retrain.warm.replay: expected at most 0.9"),
    ({"gates": [{"forgotten": "100%"}]}, "gates.0.forgotten: expected less than 1"),
]


def test_what_has_no_effect_or_can_not_be_is_refused(subtests: pytest.Subtests) -> None:
    for changes, said in INVALID_WARM_STARTS:
        with subtests.test(changes=changes):
            with pytest.raises(Invalid) as caught:
                spec(**changes)
            assert said in str(caught.value)


def test_what_was_refused_of_nobody_is_read_back() -> None:
    for family in ("mf", "ease", "popularity", "two_tower"):
        found = spec(model={"family": family})
        assert read(RecommenderSpec, found.document(), "spec") == found


def test_how_a_warm_run_goes_on_is_a_part_of_its_training_and_of_no_full_one() -> None:
    usual, other = spec(), spec(retrain={"warm": {"replay": "50%"}})
    assert stage_parts(usual, "train") == stage_parts(other, "train")
    assert stage_parts(usual, "train", "warm") != stage_parts(other, "train", "warm")
    assert stage_parts(usual, "etl", "warm") == stage_parts(other, "etl", "warm")


@pytest.mark.requirement("G-09")
def test_a_gate_asks_a_warm_run_what_it_has_forgotten_and_a_full_one_nothing() -> None:
    found = spec(gates=[{"forgotten": "10%"}, {"forgotten": "10%", "confidence": "90%"}, {"parity": 1e-4}], split={"refit": False})
    plain, sure, _ = run_plan(found, "warm").gates
    assert [one.metric for one in run_plan(found, "full").gates] == ["parity"]
    assert judge(plain, {"candidate.forgotten": 0.08}, True).verdict is Verdict.PASS
    assert judge(plain, {"candidate.forgotten": 0.12}, True).reason == "forgotten is 0.12 > 0.1"
    assert judge(plain, {}, True, Silence({"candidate.forgotten": "only 9 users"})).verdict is Verdict.INCONCLUSIVE
    for value, verdict in ((0.02, Verdict.PASS), (0.09, Verdict.INCONCLUSIVE), (0.3, Verdict.FAIL)):
        assert judge(sure, {"candidate.forgotten": value, "candidate.forgotten.se": 0.04}, True).verdict is verdict
