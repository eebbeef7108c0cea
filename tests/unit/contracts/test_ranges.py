"""What a search may choose is understood, or refused in one line."""

from __future__ import annotations

import pytest

from shared.contracts.models import Model
from shared.contracts.plans import stage_parts
from shared.contracts.ranges import NumberRange, between, one_of
from shared.contracts.spec import parse_spec
from shared.contracts.strict import read
from shared.domain.errors import Invalid

SPEC = """
name: m
data: {interactions: {uri: a.csv}, items: {uri: b.csv, key: movieId}}
schema: {user: userId, item: movieId, time: t, label: {column: rating, positive: '>= 4'}}
model: {family: mf, params: {width: 48}, tune: {params.width: {from: 32, to: 256, log: true}, params.sweeps: {of: [5, 10]}}}
"""


INVALID_RANGES = [
    ({}, "either 'from' and 'to', or 'of'"),
    ({"from": 1}, "either 'from' and 'to', or 'of'"),
    ({"from": 9, "to": 1}, "'from' must be less than 'to', got 9 and 1"),
    ({"from": 2, "to": 2}, "'from' must be less than 'to', got 2 and 2"),
    ({"from": 0, "to": 1, "log": True}, "'log' needs numbers above 0, got 0"),
    ({"from": -1, "to": 1, "log": True}, "'log' needs numbers above 0, got -1"),
    ({"of": []}, "'of' needs at least two values without repeats"),
    ({"of": ["a"]}, "'of' needs at least two values without repeats"),
    ({"of": ["a", "a"]}, "'of' needs at least two values without repeats"),
    ({"of": [1, 2], "from": 1}, "'of' lists the values; leave 'from', 'to' and 'log' out"),
    ({"from": "x", "to": 1}, "expected a whole number, got 'x'"),
    ({"from": 1, "too": 2}, "unknown field 'too': did you mean 'to'?"),
    ({"from": float("nan"), "to": 2}, "expected a"),
]


def test_a_range_that_holds_nothing_is_refused(subtests: pytest.Subtests) -> None:
    for said, fault in INVALID_RANGES:
        with subtests.test(said=said):
            with pytest.raises(Invalid) as refused:
                read(NumberRange, said, "--search width")
            assert fault in str(refused.value)


def test_a_range_says_what_it_holds() -> None:
    assert between(1, 10).holds(1) and between(1, 10).holds(10) and between(1, 10).holds(2.5)
    assert (
        not between(1, 10).holds(0) and not between(1, 10).holds(None) and not between(1, 10).holds("2") and not between(0, 1).holds(True)
    )
    assert one_of(1, "a", [1]).holds([1]) and not one_of(1, 2).holds(1.0) and not one_of(1, 2).holds(True)
    assert str(between(1e-4, 0.1, log=True)) == "0.0001 to 0.1, logarithmic"
    assert str(one_of("als", [64, 32], 3)) == "als, [64, 32], 3"


UNKNOWN_SETTINGS = [
    ("mf", "params.widht", "unknown setting of mf 'params.widht': did you mean 'params.width'?"),
    ("mf", "width", "tune: unknown setting 'width'; write params.width or train.width"),
    ("mf", "train.epochs", "tune: 'train.epochs' has no effect: mf"),
    ("mlp", "train.epoch", "unknown setting of mlp 'train.epoch': did you mean 'train.epochs'?"),
    ("mlp", "train.seed", "tune: 'train.seed' cannot be tuned: a lucky seed is not a better model"),
]


def test_a_range_of_what_the_family_has_not_is_refused_with_the_near_name(subtests: pytest.Subtests) -> None:
    for family, name, fault in UNKNOWN_SETTINGS:
        with subtests.test(family=family, name=name):
            with pytest.raises(Invalid) as refused:
                read(Model, {"family": family, "tune": {name: {"from": 1, "to": 2}}}, "m.yaml: model")
            assert fault in str(refused.value)
            assert "\n" not in str(refused.value)


def test_ranges_change_nothing_of_what_a_run_is_made_of() -> None:
    searched = parse_spec(SPEC, "m.yaml")
    plain = parse_spec(SPEC.replace(", tune: {params.width: {from: 32, to: 256, log: true}, params.sweeps: {of: [5, 10]}}", ""), "m.yaml")
    assert set(searched.model.tune) == {"params.width", "params.sweeps"}
    assert "tune" not in plain.document()["model"]
    for stage in ("etl", "train", "evaluate", "export"):
        assert stage_parts(searched, stage) == stage_parts(plain, stage)
    assert parse_spec(SPEC, "m.yaml").document()["model"]["tune"]["params.width"] == {"from": 32, "to": 256, "log": True}
