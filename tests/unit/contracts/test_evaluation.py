"""What a spec says of how many users are judged on, and which stages it concerns."""

from __future__ import annotations

from typing import Any

import pytest

from shared.contracts.evaluation import Evaluate
from shared.contracts.plans import stage_parts
from shared.contracts.spec import parse_spec
from shared.domain.errors import Invalid

SPEC = """
name: films
data: {interactions: {uri: a.parquet}, items: {uri: b.parquet, key: item}}
schema: {user: user, item: item, time: at, label: {column: rating, positive: ">= 4"}}
"""


def evaluate(said: str) -> Evaluate:
    return parse_spec(f"{SPEC}\nevaluate: {said}").evaluate


def test_users_and_pairs_have_defaults_and_are_read_as_people_write_them() -> None:
    assert parse_spec(SPEC).evaluate == Evaluate() == evaluate("{users: 20000, pairs: 1e9}")
    assert (evaluate("{users: all}").user_limit, evaluate("{users: 5}").user_limit, Evaluate().user_limit) == (None, 5, 20_000)
    assert evaluate("{pairs: 2.5e6}").pairs == 2_500_000


def test_scored_pair_by_pair_are_as_many_users_as_the_catalogue_leaves_room_for_and_one_at_least() -> None:
    assert [Evaluate(pairs=10**9).pairwise_users(size) for size in (1, 60_000, 10**6, 10**10)] == [10**9, 16_666, 1_000, 1]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{users: 0}", "evaluate.users"),
        ("{users: 2.5}", "evaluate.users"),
        ("{users: some}", "evaluate.users"),
        ("{pairs: 0}", "evaluate.pairs"),
        ("{pairs: 0.5}", "evaluate.pairs"),
        ("{pairs: 1e99}", "evaluate.pairs"),
        ("{user: 5}", "unknown field 'user': did you mean 'users'?"),
    ],
)
def test_what_is_no_number_of_users_is_refused(said: str, why: str) -> None:
    with pytest.raises(Invalid, match=why.replace("?", r"\?")):
        evaluate(said)


@pytest.mark.parametrize(
    ("gates", "ranks"),
    [
        ([], True),
        ([{"parity": 1e-4}], True),
        ([{"metric": "hr@10", "min": 0.1}], True),
        ([{"metric": "auc", "min": 0.7}, {"metric": "ndcg@10/99", "min": 0.1}], True),
        ([{"metric": "auc", "min": 0.7}, {"forgotten": 0.1}], True),
        ([{"metric": "auc", "min": 0.7}, {"parity": 1e-4}], False),
    ],
    ids=["none", "parity", "ranking", "both", "forgetting", "rows"],
)
def test_a_model_must_rank_unless_its_gates_measure_labelled_rows_alone(gates: list[dict[str, float]], ranks: bool) -> None:
    spec = parse_spec(f"{SPEC}\ngates: {gates}")
    assert spec.ranks_catalogue is ranks
    for stage in ("train", "refit"):
        assert ("spec: gates.ranking" not in stage_parts(spec, stage)) is ranks
        for model in ("{family: mf}", "{family: mlp, params: {negatives: 4}}"):
            fixed = parse_spec(f"{SPEC}\ngates: {gates}\nmodel: {model}")
            assert "spec: gates.ranking" not in stage_parts(fixed, stage), "its training draws as many for any gates"


def test_another_number_of_users_makes_the_evaluation_anew_and_no_other_stage() -> None:
    few, usual = parse_spec(f"{SPEC}\nevaluate: {{users: 9}}"), parse_spec(SPEC)
    changed: dict[str, Any] = {
        stage: {name for name, value in stage_parts(few, stage).items() if stage_parts(usual, stage)[name] != value}
        for stage in ("etl", "train", "evaluate", "export", "verify")
    }
    assert changed.pop("evaluate") == {"spec: evaluate.users"}
    assert not any(changed.values())
