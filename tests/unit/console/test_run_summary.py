"""A run in a sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.console.run_summary import left, possible, retried_from, sentence, share, stages, usual

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds):
    return (NOW + timedelta(seconds=seconds)).isoformat()


def stage(name, began, ended, reused=False):
    return {"stage": name, "attempt": f"r1-{name}-1", "started_at": at(began), "ended_at": at(ended), "reused": reused, "why": ""}


def run(state, done=(), **more):
    base = {"state": state, "stages": list(done), "mode": "full", "reason": "", "asked": None, "attempt": 1, "attempt_since": at(0)}
    base["planned_stages"] = ["etl", "train", "evaluate", "export", "verify"]
    return base | {"retry_at": None, "progress": None, "why": "", "position": None, "dead_letter": False, "version": None} | more


def told(epoch, step, left=None):
    return {"epoch": epoch, "epochs": 4, "step": step, "steps": 10, "seconds_left": left}


EARLIER = [
    run(
        "registered",
        [stage("etl", 0, 10), stage("train", 10, 70), stage("evaluate", 70, 75), stage("export", 75, 77), stage("verify", 77, 80)],
    ),
    run("registered", [stage("etl", 0, 1, reused=True), stage("train", 1, 41)], mode="full"),
    run("registered", [stage("train", 0, 1)], mode="warm"),
]


def tell(one, seconds=0.0, gates=(), took=None, earlier=EARLIER):
    return sentence(one, stages(one, usual(earlier, one["mode"]), NOW + timedelta(seconds=seconds)), gates, took)


def test_what_a_stage_usually_takes_is_of_runs_that_did_its_work_in_the_same_mode():
    assert usual(EARLIER, "full")["etl"].seconds == 10
    assert (usual(EARLIER, "full")["train"].seconds, usual(EARLIER, "full")["train"].runs) == (50, 2)
    assert usual(EARLIER, "warm")["train"].seconds == 1
    assert usual([], "full") == {}


@pytest.mark.parametrize("progress, found", [(None, None), (told(1, 0), 0.0), (told(3, 5), 0.625), (told(4, 10), 1.0), (told(1, 99), 0.25)])
def test_the_share_of_a_stage_is_of_its_epochs_and_steps(progress, found):
    assert share(progress) == found


def test_the_time_left_is_told_by_the_stage_itself_and_for_later_ones_by_earlier_runs():
    one = run("train", [stage("etl", 0, 10)], progress=told(3, 5, left=12.0))
    rows = stages(one, usual(EARLIER, "full"), NOW)
    assert left(one, rows) == 12 + 5 + 2 + 3
    assert tell(one) == "Train is running, epoch 3 of 4. About 22 s of work left, based on 2 earlier runs."
    silent = run("train", [stage("etl", 0, 10)])
    assert left(silent, stages(silent, usual(EARLIER, "full"), NOW + timedelta(seconds=30))) == 20 + 5 + 2 + 3
    assert left(silent, stages(silent, usual(EARLIER, "full"), NOW + timedelta(seconds=300))) == 0 + 5 + 2 + 3
    assert "The remaining time is not known" in tell(silent, earlier=[])


def test_a_refit_that_nobody_has_seen_yet_takes_as_long_as_train():
    planned = ["etl", "train", "evaluate", "refit", "export", "verify"]
    one = run("evaluate", [stage("etl", 0, 10), stage("train", 10, 60)], planned_stages=planned)
    rows = stages(one, usual(EARLIER, "full"), NOW)
    assert [row.name for row in rows] == planned
    assert left(one, rows) == 5 + 50 + 2 + 3


def test_one_that_waits_says_for_what_and_where():
    said = tell(run("pending", reason="waits for run r0 of this recommender", position=None, attempt=0))
    assert said.startswith("Pending: waits for run r0 of this recommender. About")
    assert "at position 3 in the queue" in tell(run("pending", reason="waits for a free place", position=3, attempt=0))


def test_one_that_was_rejected_says_by_how_many_gates_and_why():
    gates = [{"verdict": verdict, "stage": "evaluate", "accepted": ""} for verdict in ("fail", "pass", "not asked")]
    done = [stage("etl", 0, 1), stage("train", 1, 2), stage("evaluate", 2, 3)]
    one = run("rejected", done, reason="auc is 0.4 < 0.6")
    assert tell(one, gates=gates) == "Rejected after evaluate: 1 of 2 checked gates failed: auc is 0.4 < 0.6."
    gates[0]["verdict"] = "inconclusive"
    assert "checked gates inconclusive: " in tell(one, gates=gates)
    assert (possible(one), retried_from(one)) == (["etl", "train", "evaluate", "export"], "evaluate")


def test_one_that_failed_says_where_and_whether_it_gave_up():
    one = run("failed", [stage("etl", 0, 1)], reason="train: killed: raise resources.train.memory", dead_letter=True)
    assert tell(one) == "Failed in train: killed: raise resources.train.memory. It is a dead letter: retry it, or start a new run."
    assert (possible(one), retried_from(one)) == (["etl", "train"], "train")
    assert [row.state for row in stages(one, {}, NOW)] == ["done", "failed", "not reached", "not reached", "not reached"]


def test_one_that_is_registered_says_its_version():
    one = run("registered", EARLIER[0]["stages"], version=4, reason="all gates passed")
    assert tell(one, took=80) == "Registered as version 4 after 1 min 20 s: all gates passed."
    assert possible(one) == []


def test_a_pause_after_a_fault_and_an_open_request_are_told():
    assert tell(run("train", retry_at=at(9), attempt=2, reason="train, attempt 1: crashed; next attempt in 10 s")).startswith(
        "Train pauses before attempt 2: train, attempt 1: crashed; next attempt in 10 s."
    )
    assert tell(run("train", asked="cancel")) == "Pending request: cancel."
