"""What the spec says of gates: read, refused with a line that helps, and what stages are told of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shared.contracts.plans import estimators, gated_metrics, run_plan, stage_parts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import Invalid


def spec(gates: list[dict[str, Any]], **more: Any) -> RecommenderSpec:
    document = {
        "name": "films",
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
        "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
        "gates": gates,
        **more,
    }
    return read(RecommenderSpec, document, "spec")


GATE_TEXTS = [
    (
        {"metric": "hr@10", "slice": "cold_users", "not_worse_than": "serving", "by": "5%"},
        "hr@10{cold_users} not worse than serving by 5.00%",
    ),
    ({"metric": "hr@10", "slice": "user_history <= 5", "min": 0.4}, "hr@10{user_history<=5} at least 0.4"),
    (
        {"metric": "hr@10", "slice": "item_history>=10 and user_history<5", "min": 0.4},
        "hr@10{item_history>=10 and user_history<5} at least 0.4",
    ),
    ({"metric": "ndcg@10/99", "min": 0.3, "confidence": "95%"}, "ndcg@10/99 at least 0.3 with 95% confidence"),
    (
        {"off_policy": "snips", "not_worse_than": "serving", "by": "2%"},
        "hit_rate.snips not worse than serving by 2.00%",
    ),
    ({"metric": "hr@10", "better_than": "popularity", "confidence": "50%"}, "hr@10 better than popularity"),
    ({"off_policy": "dr", "better_than": "serving", "confidence": 0.8}, "hit_rate.dr better than serving with 80% confidence"),
    ({"size": "200Mi"}, "size at most 200 MiB"),
]


@pytest.mark.requirement("C-04")
def test_a_gate_reads_as_it_is_written(subtests: pytest.Subtests) -> None:
    for gate, said in GATE_TEXTS:
        with subtests.test(gate=gate):
            found = spec([gate])
            assert [str(one) for one in run_plan(found).gates] == [said, "hr@10 not worse than candidate with 99% confidence"]
            assert read(RecommenderSpec, found.document(), "its own document") == found


INVALID_GATES = [
    (
        [{"metric": "hr@10", "slice": "cold_user", "min": 0.1}],
        {},
        "gates.0.slice: unknown slice 'cold_user': did you mean 'cold_users'?",
    ),
    (
        [{"metric": "hr@10", "slice": "user_histori<=5", "min": 0.1}],
        {},
        "gates.0.slice: 'user_histori<=5': expected user_history or item_history compared with a whole number, such as user_history<=5",
    ),
    ([{"metric": "hr@10", "slice": "user_history<=2.5", "min": 0.1}], {}, "'user_history<=2.5': expected user_history or item_history"),
    ([{"metric": "hr@10", "slice": "user_history=<5", "min": 0.1}], {}, "gates.0.slice: 'user_history=<5', column 13: '=' is not a sign"),
    ([{"metric": "hr@10", "slice": "user.history<5 or user_history>9", "min": 0.1}], {}, "join several by 'and'"),
    ([{"metric": "auc", "slice": "cold_users", "min": 0.1}], {}, "'auc' is not measured per slice; use hr@10, ndcg@10"),
    ([{"metric": "hr@10", "min": 0.1, "confidence": "100%"}], {}, "gates.0.confidence: expected at most 0.999"),
    ([{"metric": "hr@10", "min": 0.1, "confidence": 0.4}], {}, "gates.0.confidence: expected at least 0.5"),
    ([{"metric": "hr@10", "min": 0.1, "inconclusive": "ignore"}], {}, "gates.0.inconclusive: expected 'accept' or 'reject'"),
    ([{"metric": "hr@10", "min": 0.1, "min_users": 0}], {}, "gates.0.min_users: expected at least 1"),
    ([{"off_policy": "snips"}], {}, "an off_policy gate needs exactly one of better_than, not_worse_than"),
    ([{"off_policy": "snip", "better_than": "serving"}], {}, "gates.0.off_policy: expected 'ips', 'snips' or 'dr'"),
    ([{"off_policy": "dr", "better_than": "popularity"}], {}, "gates.0.better_than: expected 'serving', got 'popularity'"),
    (
        [{"off_policy": "dr", "better_than": "serving"}],
        {"serve": {"order": {"explore": {"rate": 0}}}},
        "gates: off_policy needs explored answers; set serve.order.explore.rate above 0",
    ),
    (
        [{"off_policy": "dr", "better_than": "serving"}],
        {"serve": {"order": {"rules": [{"pin": 1}]}}},
        "gates: off_policy does not support serve.order.rules yet; leave one of both out",
    ),
    (
        [{"off_policy": "dr", "better_than": "serving"}],
        {"serve": {"filter": ["price < 3"]}},
        "gates: off_policy does not support expressions in serve.filter yet; leave one of both out",
    ),
    ([{"size": "little"}], {}, "gates.0.size: expected an amount of memory such as 512Mi"),
]


def test_what_can_have_no_effect_is_refused_by_its_place(subtests: pytest.Subtests) -> None:
    for gates, more, said in INVALID_GATES:
        with subtests.test(gates=gates, more=more), pytest.raises(Invalid, match=re.escape(said)):
            spec(gates, **more)


POLICIES = [
    ({"metric": "hr@10", "min": 0.1}, None, "reject"),
    ({"metric": "hr@10", "better_than": "popularity"}, 0.9, "reject"),
    ({"metric": "hr@10", "not_worse_than": "popularity"}, 0.9, "reject"),
    ({"metric": "hr@10", "not_worse_than": "serving"}, 0.9, "accept"),
    ({"metric": "hr@10", "not_worse_than": "serving", "inconclusive": "reject", "confidence": 0.99}, 0.99, "reject"),
    ({"metric": "hr@10", "better_than": "serving", "confidence": 0.5}, None, "reject"),
    ({"off_policy": "snips", "not_worse_than": "serving"}, 0.9, "accept"),
    ({"off_policy": "snips", "better_than": "serving"}, 0.9, "reject"),
    ({"forgotten": "10%"}, None, "reject"),
]


@pytest.mark.requirement("C-04")
def test_comparisons_are_sure_by_default_and_the_canary_decides_what_is_not_known(subtests: pytest.Subtests) -> None:
    for gate, confidence, inconclusive in POLICIES:
        with subtests.test(gate=gate):
            found, _ = run_plan(spec([gate])).gates
            assert (found.confidence, found.inconclusive, found.min_users) == (confidence, inconclusive, 100)
            fewer, _ = run_plan(spec([gate | {"min_users": 7}])).gates
            assert fewer.min_users == 7


def test_evaluate_runs_anew_when_gates_ask_for_more() -> None:
    plain = spec([{"metric": "hr@10", "min": 0.1}])
    sliced = spec([{"metric": "hr@10", "slice": "cold_users", "min": 0.1, "confidence": 0.9}])
    assert (gated_metrics(plain), gated_metrics(sliced)) == (["hr@10"], ["hr@10{cold_users}"])
    assert stage_parts(plain, "evaluate") != stage_parts(sliced, "evaluate")
    assert stage_parts(plain, "evaluate") == stage_parts(spec([{"metric": "hr@10", "min": 0.2}]), "evaluate")
    assert estimators(plain) == []
    twice = [{"off_policy": one, "better_than": "serving"} for one in ("snips", "dr", "snips")]
    assert estimators(spec(twice)) == ["dr", "snips"]
