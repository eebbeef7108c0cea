"""When a stage is what it was, and what is said when it isn't."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.contracts.plans import READS, stage_parts
from shared.domain.run import STAGES
from shared.domain.stage_reuse import StageOutput, changed, digest, leaves, part, why_not
from tests.support.simulated_platform import spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_digest_is_that_of_all_parts_whatever_their_order() -> None:
    assert digest("etl", {"a": "1", "b": "2"}) == digest("etl", {"b": "2", "a": "1"})
    assert len({digest("etl", {"a": "1"}), digest("train", {"a": "1"}), digest("etl", {"a": "2"}), digest("etl", {"b": "1"})}) == 4


def test_a_part_is_readable_where_it_is_short() -> None:
    assert leaves({"train": {"epochs": 5, "layers": [64, 32]}, "none": {}}, "model") == {
        "model.train.epochs": "5",
        "model.train.layers": "[64, 32]",
        "model.none": "{}",
    }
    assert part(list(range(100))).startswith("sha256:")


def test_a_miss_names_what_has_changed() -> None:
    before = {"spec: model.train.epochs": "5", "data: a.csv": "sha256:1", "code": "1.0"}
    now = {"spec: model.train.epochs": "8", "data: a.csv": "sha256:2", "data: b.csv": "1 byte"}
    newest = StageOutput("films", "etl", "d", before, "r1-etl-1", NOW)
    assert changed(now, before) == ("code was removed", "data: a.csv changed", "data: b.csv is new", "spec: model.train.epochs is 8, was 5")
    assert why_not(now, newest) == "code was removed; data: a.csv changed; data: b.csv is new and 1 more"
    assert why_not(now, None) == "nothing to reuse yet"


SPEC_CHANGES: list[tuple[dict[str, object], set[str]]] = [
    ({}, set()),
    ({"model": {"train": {"epochs": 9}}}, {"train", "refit", "export"}),
    ({"model": {"train": {"seed": 9}}}, {"train", "evaluate", "refit", "export"}),
    ({"model": {"params": {"negatives": 9}}}, {"etl", "train", "refit", "export"}),
    ({"split": {"test": "10%"}}, {"etl"}),
    ({"serve": {"filter": []}}, {"evaluate", "refit"}),
    ({"split": {"refit": False}}, set()),
    ({"serve": {"lists": "offsets"}}, {"export"}),
    ({"serve": {"vocabulary_limit": 10}}, {"export"}),
    ({"gates": [{"metric": "auc", "min": 0.9}, {"parity": 1e-3}]}, set()),
    ({"gates": [{"metric": "hr@3", "min": 0.6}]}, {"train", "evaluate", "refit"}),  # a ranking, so that negatives are drawn
    ({"rollout": {"steps": ["3%"]}}, set()),
    ({"resources": {"train": {"timeout": "3s"}}}, set()),
    ({"resources": {"train": {"memory": "1Gi"}}}, {"train", "refit"}),
    ({"model": {"params": {"verified": True}}}, {"train", "refit", "export"}),
]


def test_a_change_of_the_spec_touches_the_stages_that_read_it(subtests: pytest.Subtests) -> None:
    """Directly: what follows from it reaches the later stages through their input files."""
    for changes, stages in SPEC_CHANGES:
        with subtests.test(changes=changes, stages=stages):
            before, after = spec(), spec(**changes)
            assert {stage for stage in STAGES if stage_parts(before, stage) != stage_parts(after, stage)} == stages


def test_every_stage_says_what_it_reads() -> None:
    assert tuple(READS) == STAGES
