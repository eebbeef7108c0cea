"""Rows store specs and lineages as plain JSON: what only a retry has is absent from other runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from shared.contracts.codec import decode, encode
from shared.contracts.records import AttemptLineage, Lineage, RolloutSpec, RunSpec
from shared.domain.machine import Request
from shared.domain.run import StageDone
from shared.testing.records import LINEAGE, RUN_SPEC

FIRST = ["document", "generation", "mode", "cause", "serving", "by", "fresh", "trigger"]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_only_a_retry_stores_what_it_goes_on_from() -> None:
    retry = replace(RUN_SPEC, retry_of="r1", from_stage="train", adopt={"etl": StageDone("etl", "r1-etl-1", AT, AT)}, accepts="")
    assert list(encode(RunSpec, RUN_SPEC)) == FIRST
    assert list(encode(RunSpec, retry)) == [*FIRST, "retry_of", "from", "adopt", "accepts"]
    assert decode(RunSpec, encode(RunSpec, retry)) == retry
    assert decode(RunSpec, encode(RunSpec, RUN_SPEC)) == RUN_SPEC


def test_a_rollout_stores_the_request_that_started_it() -> None:
    back = RolloutSpec(1, {"name": "films"}, back=Request("rollback", "ada"))
    assert encode(RolloutSpec, RolloutSpec(1, {"name": "films"})) == {"version": 1, "document": {"name": "films"}}
    assert list(encode(RolloutSpec, back)) == ["version", "document", "back"]
    assert decode(RolloutSpec, encode(RolloutSpec, back)) == back


def test_a_lineage_keeps_the_form_of_its_time_and_its_facts() -> None:
    attempts = {"etl": AttemptLineage("r1-etl-1", False, "", "ab"), "verify": AttemptLineage("r1-verify-1", False, "")}
    lineage = replace(LINEAGE, attempts=attempts, stages={"etl": {"split": {"cut": 0.1 + 0.2}, "none": None}})
    stored = encode(Lineage, lineage)
    assert (stored["snapshot"], stored["stages"], stored["retry_of"]) == (AT.isoformat(), lineage.stages, None)
    assert [list(attempt) for attempt in stored["attempts"].values()] == [
        ["attempt", "reused", "why", "digest"],
        ["attempt", "reused", "why"],
    ]
    assert decode(Lineage, stored) == lineage
