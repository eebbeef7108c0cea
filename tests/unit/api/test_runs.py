"""Runs and rollouts over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from services.api.examples import EXAMPLES
from shared.contracts.progress import EpochTold, Progress
from shared.contracts.stage import File
from shared.contracts.validation_report import REPORT
from shared.domain import rollout as rollouts
from shared.domain import run as runs
from shared.domain.errors import Invalid, Unavailable
from shared.domain.gate import GateResult, Verdict
from shared.domain.machine import Request
from shared.domain.run import RunStatus, StageDone
from shared.domain.sequential_test import Judgement, VariantSample
from shared.domain.stage_reuse import ReuseBasis
from shared.domain.step_analysis import CheckResult, ShadowReport, StepReport
from shared.domain.traffic import ShadowCounts
from shared.domain.warm_or_full import Link, TrainingHistory
from tests.support.api_world import NOW, World, stored_document

VERBS = ("pause", "resume", "skip", "promote", "abort")


def test_a_run_starts_by_hand_and_says_why(world, client):
    world.add_recommender()
    response = client.post("/v1/recommenders/m/runs", json={"reason": "new data"})
    assert response.status_code == 202
    assert (response.json()["state"], response.json()["cause"], response.json()["mode"]) == ("pending", "new data", "full")
    assert client.post("/v1/recommenders/m/runs").json()["cause"] == "asked by owner"


def test_a_warm_run_starts_from_the_version_that_serves(world, client, problem):
    world.add_recommender()
    said = problem(client.post("/v1/recommenders/m/runs", json={"mode": "warm"}), 409, "conflict")
    assert "start a full run" in said
    assert world.runs.rows == {}
    world.route(4)
    found = client.post("/v1/recommenders/m/runs", json={"mode": "warm"}).json()
    assert world.runs.get(found["id"]).spec.serving == 4


@pytest.mark.requirement("G-09")
def test_auto_is_decided_when_the_run_is_asked_for_and_its_cause_says_by_what(world, client):
    world.add_recommender()
    found = client.post("/v1/recommenders/m/runs", json={"mode": "auto", "reason": "new data"}).json()
    assert (found["mode"], found["cause"]) == ("full", "new data; auto: full (no version to continue from)")
    world.route(4)
    world.past = TrainingHistory((Link("warm", {"user": 105}, 0.01), Link("full", {"user": 100})))
    found = client.post("/v1/recommenders/m/runs", json={"mode": "auto", "reason": "new data"}).json()
    said = "1 warm run since the last full one, user +5% codes, 1.0% forgotten"
    assert (found["mode"], found["cause"]) == ("warm", f"new data; auto: warm ({said})")
    assert client.post("/v1/recommenders/m:plan", json={"mode": "auto"}).json()["mode"] == "warm"


def test_an_unknown_mode_is_refused_with_the_known_ones(world, client, problem):
    world.add_recommender()
    said = problem(client.post("/v1/recommenders/m/runs", json={"mode": "hot"}), 422, "invalid")
    assert "mode: " in said
    assert "'full', 'warm' or 'auto'" in said


def test_a_run_shows_stages_gates_and_the_numbers_so_far(world, client):
    gate = GateResult("auc at least 0.6", Verdict.FAIL, "auc is 0.5 < 0.6")
    world.add_run(state="rejected", stages=("etl", "train", "evaluate"), gates=(gate,), reason="auc is 0.5 < 0.6")
    world.add_manifest("r1-etl-1", **{"rows.train": 10.0})
    world.add_manifest("r1-evaluate-1", **{"candidate.auc": 0.5})
    found = client.get("/v1/runs/r1").json()
    assert [one["stage"] for one in found["stages"]] == ["etl", "train", "evaluate"]
    assert found["gates"] == [{"gate": "auc at least 0.6", "verdict": "fail", "reason": "auc is 0.5 < 0.6"}]
    assert found["metrics"] == {"rows.train": 10.0, "candidate.auc": 0.5}
    assert (found["version"], found["rollout"], found["reason"]) == (None, None, "auc is 0.5 < 0.6")


def test_a_run_shows_how_far_the_stage_under_way_has_told_that_it_is(world, client):
    world.add_run(state="train", stages=("etl",), attempt=2)
    assert client.get("/v1/runs/r1").json()["progress"] is None
    epoch = EpochTold(epoch=1, loss=0.5, seconds=2.0, rows_per_s=100.0, validation={"auc": 0.7})
    told = Progress(at=NOW, epoch=2, epochs=5, step=3, steps=9, loss=0.4, rows_per_s=120.0, seconds_left=7.5, history=(epoch,))
    world.told = {"r1-train-1": told.model_copy(update={"epoch": 1}), "r1-train-2": told}
    tag = client.get("/v1/runs/r1").headers["etag"]
    found = client.get("/v1/runs/r1").json()["progress"]
    assert (found["epoch"], found["loss"], found["seconds_left"]) == (2, 0.4, 7.5)
    assert found["history"] == [{"epoch": 1, "loss": 0.5, "seconds": 2.0, "rows_per_s": 100.0, "validation": {"auc": 0.7}}]
    world.told["r1-train-2"] = told.model_copy(update={"step": 4})
    assert client.get("/v1/runs/r1").headers["etag"] != tag, "who has seen the run sees that it goes on"


@pytest.mark.parametrize("fault", [Unavailable("the store is away"), OSError("the network"), Invalid("another release")])
def test_a_run_is_shown_without_its_progress_where_that_can_not_be_read(world, client, fault):
    def fails(attempt):
        raise fault

    world.add_run(state="train", stages=("etl",), attempt=1)
    world.told = SimpleNamespace(get=fails)
    assert client.get("/v1/runs/r1").json()["progress"] is None


def test_a_registered_run_names_its_version_and_rollout(world, client):
    world.add_run(state="registered", stages=runs.STAGES)
    world.add_version(3)
    assert client.get("/v1/runs/r1").json()["rollout"] is None
    world.add_rollout(version=3)
    found = client.get("/v1/runs/r1").json()
    assert (found["version"], found["rollout"], found["metrics"]) == (3, "r1-rollout", {"candidate.hr@10": 0.4})


def test_lists_come_newest_first_and_in_pages(world, client, problem):
    world.add_recommender()
    for number in range(5):
        world.add_run(f"r{number}")
    first = client.get("/v1/recommenders/m/runs?limit=3").json()
    assert [one["id"] for one in first["items"]] == ["r4", "r3", "r2"]
    rest = client.get(f"/v1/recommenders/m/runs?limit=3&cursor={first['next']}").json()
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (["r1", "r0"], None)
    problem(client.get("/v1/recommenders/x/runs"), 404, "not-found")


def test_a_run_is_cancelled_where_its_state_answers_to_it(problem, subtests):
    for state in runs.MACHINE.states:
        with subtests.test(state=state):
            world = World()
            client = world.client
            world.add_run(state=state)
            response = client.post("/v1/runs/r1:cancel", json={"reason": "enough"})
            if "cancel" in runs.ANSWERS.get(state, ()):
                assert (response.status_code, response.json()["asked"]) == (202, "cancel")
                assert world.runs.get("r1").request == Request("cancel", "owner", "enough")
            else:
                assert f"is {state}" in problem(response, 409, "conflict")
                assert world.runs.get("r1").request is None


@pytest.mark.requirement("C-05")
def test_a_rollout_takes_the_verbs_of_its_state_and_says_which_they_are(problem, subtests):
    for state in rollouts.MACHINE.states:
        for verb in VERBS:
            with subtests.test(state=state, verb=verb):
                world = World()
                client = world.client
                world.add_rollout("r1-rollout", state, step=0, resumes="canary")
                response = client.post(f"/v1/rollouts/r1-rollout:{verb}")
                possible = rollouts.ANSWERS.get(state, frozenset())
                if verb in possible:
                    assert (response.status_code, response.json()["asked"]) == (202, verb)
                    assert world.woken
                else:
                    said = problem(response, 409, "conflict")
                    assert f"is {state.replace('_', ' ')}" in said
                    assert all(one in said for one in possible)


def test_an_unknown_verb_is_refused(world, client, problem):
    world.add_rollout()
    assert "'pause', 'resume', 'skip', 'promote' or 'abort'" in problem(client.post("/v1/rollouts/r1-rollout:explode"), 422, "invalid")


def test_a_second_request_waits_for_the_first(world, client, problem):
    world.add_rollout()
    client.post("/v1/rollouts/r1-rollout:pause")
    assert "request open" in problem(client.post("/v1/rollouts/r1-rollout:abort"), 409, "conflict")


def test_a_rollout_shows_what_each_step_has_shown(world, client):
    judgement = Judgement(Verdict.PASS, "no evidence of harm", 0.1, -0.2, 0.4)
    report = StepReport(0, 0.05, None, VariantSample(200, 50, 40, 300, 80), VariantSample(100, 30, 20, 150, 50), judgement)
    world.add_rollout(step=0, reports=(report,))
    found = client.get("/v1/rollouts/r1-rollout").json()
    assert (found["version"], found["steps"], found["step"]) == (2, [0.05, 0.25, 0.5], 0)
    (shown,) = found["reports"]
    assert shown["stable"] == {"users": 200, "answers": 300, "hits": 80, "mean": 0.25, "converted": 0}
    assert (shown["verdict"], shown["lift"], shown["lower"], shown["upper"]) == ("pass", 0.1, -0.2, 0.4)
    assert shown["checks"] == [{"name": "goal", "verdict": "pass", "reason": "no evidence of harm"}], "kept before there were others"


def test_a_rollout_shows_its_shadow_and_every_check_by_name(world, client):
    slow = CheckResult("latency_p99", Judgement(Verdict.FAIL, "p99 is 9 ms"))
    goal = Judgement(Verdict.INCONCLUSIVE, "3 of 30 users")
    report = StepReport(0, 0.05, None, VariantSample(), VariantSample(), goal, (slow,), Verdict.FAIL, "p99 is 9 ms")
    shadow = ShadowReport.of(ShadowCounts(10, 1, {60: 10}, {60: 9}, 8.0, 2), NOW, Judgement(Verdict.PASS, "10 requests compared"))
    world.add_rollout(step=0, reports=(report,), shadow=shadow, looked_at=NOW)
    found = client.get("/v1/rollouts/r1-rollout").json()
    assert (found["kind"], found["looked_at"]) == ("canary", "2026-01-01T00:00:00Z")
    assert (found["reports"][0]["verdict"], found["reports"][0]["reason"]) == ("fail", "p99 is 9 ms")
    assert [(one["name"], one["verdict"]) for one in found["reports"][0]["checks"]] == [("goal", "inconclusive"), ("latency_p99", "fail")]
    assert (found["shadow"]["compared"], found["shadow"]["overlap"], found["shadow"]["dropped"]) == (10, 0.8, 2)


def test_the_last_step_is_not_skipped_and_it_is_said_what_to_do(world, client, problem):
    world.add_rollout(step=2)
    said = problem(client.post("/v1/rollouts/r1-rollout:skip"), 409, "conflict")
    assert "this is the last step; promote sends all users to version 2, abort sends them back" in said
    assert world.rollouts.get("r1-rollout").request is None


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("path", ["/v1/runs/r1/events", "/v1/rollouts/r1-rollout/events"])
def test_the_history_says_who_did_what(world, client, path):
    world.add_run()
    world.add_rollout()
    (entry,) = client.get(path).json()["items"]
    assert entry == {"at": "2026-01-01T00:00:00Z", "source": "", "target": "pending", "reason": "created", "actor": "operator"}


UNKNOWN_PATHS = [
    "/v1/runs/x",
    "/v1/runs/x/events",
    "/v1/runs/x/logs",
    "/v1/runs/x/validation",
    "/v1/runs/x/evaluation",
    "/v1/rollouts/x",
    "/v1/rollouts/x/events",
]


def test_what_nobody_knows_is_not_found(client, problem, subtests):
    for path in UNKNOWN_PATHS:
        with subtests.test(path=path):
            assert "'x'" in problem(client.get(path), 404, "not-found")


def test_logs_are_those_of_the_stage_under_way_or_of_the_one_named(world, client):
    world.add_run(state="train", stages=("etl",), attempt=2)
    world.executor.text = {"r1-etl-1": "etl says", "r1-train-2": "train says"}
    assert client.get("/v1/runs/r1/logs").json() == {
        "text": "train says",
        "start": 0,
        "next": 10,
        "stage": "train",
        "attempt": "r1-train-2",
    }
    assert client.get("/v1/runs/r1/logs?stage=etl&offset=4").json()["text"] == "says"
    assert client.get("/v1/runs/r1/logs?stage=export&offset=3").json() == {
        "text": "",
        "start": 3,
        "next": 3,
        "stage": "export",
        "attempt": None,
    }


ENDED_RUNS = [
    ("pending", (), 0, None),
    ("failed", ("etl",), 3, "r1-train-3"),
    ("cancelled", (), 0, None),
    ("cancelled", (), 1, "r1-etl-1"),
    ("rejected", ("etl", "train", "evaluate"), 1, "r1-evaluate-1"),
    ("registered", runs.STAGES, 1, "r1-verify-1"),
]


def test_logs_of_a_run_that_has_ended_are_those_of_the_stage_that_it_ended_in(subtests):
    for state, stages, attempt, named in ENDED_RUNS:
        with subtests.test(state=state, stages=stages):
            world = World()
            world.add_run(state=state, stages=stages, attempt=attempt)
            assert world.client.get("/v1/runs/r1/logs").json()["attempt"] == named


def test_the_report_of_a_runs_data_is_shown_whether_it_went_on_or_not(world, client, problem):
    report = EXAMPLES["get_run_validation"]["answer"]
    file = File(sha256="a" * 64, size=1)
    world.blobs[file.sha256] = json.dumps(report).encode()
    for id, state, stages, attempt in (("r1", "train", ("etl",), 1), ("r2", "failed", (), 2)):
        world.add_run(id, state=state, stages=stages, attempt=attempt)
        assert "no validation report" in problem(client.get(f"/v1/runs/{id}/validation"), 404, "not-found")
        world.add_manifest(f"{id}-etl-{attempt}", files={REPORT: file})
        assert client.get(f"/v1/runs/{id}/validation").json() == report


@pytest.mark.requirement("N-07")
def test_the_report_of_a_runs_model_is_there_once_it_was_judged(world, client, problem):
    world.add_run("r1", state="export", stages=("etl", "train", "evaluate"))
    assert "no evaluation report: it exists when evaluate has succeeded" in problem(client.get("/v1/runs/r1/evaluation"), 404, "not-found")
    files = {"report.json": File(sha256="a" * 64, size=1), "report.html": File(sha256="b" * 64, size=1)}
    world.blobs |= {"a" * 64: b'{"model": "candidate"}', "b" * 64: "<p>±</p>".encode()}
    world.add_manifest("r1-evaluate-1", files=files)
    found = client.get("/v1/runs/r1/evaluation").json()
    assert found == {"attempt": "r1-evaluate-1", "report": {"model": "candidate"}, "page": "<p>±</p>"}


# The queue


@pytest.mark.requirement("C-03")
def test_a_run_that_waits_says_for_what_and_at_which_place(world, client):
    world.add_recommender()
    world.add_run("r0", "train")
    world.runs.create(replace(world.runs.get("r0"), id="x1", recommender="books"), "ada")
    found = client.post("/v1/recommenders/m/runs", json={"priority": 7}).json()
    assert (found["priority"], found["reason"], found["position"]) == (7, "waits for run r0 of this recommender", None)
    del world.runs.rows["r0"]
    found = client.get(f"/v1/runs/{found['id']}").json()
    assert (found["reason"], found["position"]) == ("first in the queue: 1 of 1 runs are active", 1)


def test_a_priority_out_of_bounds_is_refused(world, client, problem, subtests):
    for priority in (-101, 101, 0.5, "high"):
        with subtests.test(priority=priority):
            world.add_recommender()
            assert "priority: " in problem(client.post("/v1/recommenders/m/runs", json={"priority": priority}), 422, "invalid")


def test_a_run_that_waits_gets_another_place(world, client, problem):
    world.add_run("r1")
    found = client.post("/v1/runs/r1:prioritise", json={"priority": 50, "reason": "the shop is on fire"}).json()
    assert found["priority"] == 50
    assert world.runs.said.reason == "priority 0 -> 50, prioritise by owner: the shop is on fire"
    world.add_run("r2", "train")
    said = problem(client.post("/v1/runs/r2:prioritise", json={"priority": 50}), 409, "conflict")
    assert "no longer in the queue" in said
    assert world.runs.get("r2").priority == 0


def test_runs_that_gave_up_are_told_from_those_that_were_refused(world, client):
    world.add_recommender()
    for number in range(9):
        world.add_run(f"r{number}", "failed" if number % 2 else "registered", dead_letter=number in (1, 7))
    found = client.get("/v1/recommenders/m/runs?dead_letter=true").json()["items"]
    assert [(one["id"], one["dead_letter"]) for one in found] == [("r7", True), ("r1", True)]
    assert [one["id"] for one in client.get("/v1/recommenders/m/runs?state=failed&dead_letter=false").json()["items"]] == ["r5", "r3"]
    page = client.get("/v1/recommenders/m/runs?dead_letter=true&limit=1").json()
    assert [one["id"] for one in page["items"]] == ["r7"]
    assert [one["id"] for one in client.get(f"/v1/recommenders/m/runs?dead_letter=true&limit=1&cursor={page['next']}").json()["items"]] == [
        "r1"
    ]


# Retrying


def test_a_retry_is_a_new_run_that_takes_over_what_was_published(world, client):
    world.add_run("r1", "failed", stages=("etl", "train"), attempt=3, dead_letter=True)
    response = client.post("/v1/runs/r1:retry", json={"reason": "the disk is larger now"})
    assert response.status_code == 202
    found = world.runs.get(response.json()["id"])
    assert (found.status.state, found.spec.retry_of, found.spec.from_stage, found.spec.cause) == (
        "pending",
        "r1",
        "evaluate",
        "the disk is larger now",
    )
    assert {stage: adopted.attempt for stage, adopted in found.spec.adopt.items()} == {"etl": "r1-etl-1", "train": "r1-train-1"}
    assert (found.spec.document, found.spec.generation) == (world.runs.get("r1").spec.document, 1)
    assert response.json()["retry_of"] == "r1"
    earlier = client.post("/v1/runs/r1:retry", json={"from": "train"}).json()
    assert set(world.runs.get(earlier["id"]).spec.adopt) == {"etl"}


INVALID_RETRIES = [
    ("train", ("etl",), {}, 409, "is train: only an ended run can be retried"),
    ("registered", runs.STAGES, {}, 409, "has registered its version"),
    ("failed", ("etl",), {"from": "export"}, 409, "has published etl: it can be retried from etl or train"),
    ("cancelled", (), {"from": "train"}, 409, "has published no stage: it can be retried from etl"),
    ("failed", (), {"from": "cook"}, 422, "'etl', 'train', 'evaluate', 'refit', 'export' or 'verify'"),
]


def test_a_retry_that_can_not_be_says_what_can(problem, subtests):
    for state, stages, body, status, said in INVALID_RETRIES:
        with subtests.test(state=state, stages=stages, body=body):
            world = World()
            world.add_run("r1", state, stages=stages)
            response = world.client.post("/v1/runs/r1:retry", json=body)
            assert said in problem(response, status, "conflict" if status == 409 else "invalid")
            assert list(world.runs.rows) == ["r1"]


def test_a_rejected_run_is_retried_from_the_stage_that_refused_it(world, client):
    world.add_run("r1", "rejected", stages=("etl", "train", "evaluate"))
    found = client.post("/v1/runs/r1:retry").json()
    assert world.runs.get(found["id"]).spec.from_stage == "evaluate"


@pytest.mark.requirement("C-01")
def test_who_accepts_what_is_inconclusive_says_why_and_is_remembered(world, client, problem):
    world.add_run("r1", "rejected", stages=("etl", "train", "evaluate"))
    refused = client.post("/v1/runs/r1:retry", json={"accept": True, "reason": " "})
    assert problem(refused, 422, "invalid") == "reason: required with accept; write why inconclusive gates are accepted"
    found = world.runs.get(client.post("/v1/runs/r1:retry", json={"accept": True, "reason": "holidays"}).json()["id"])
    assert (found.spec.accepts, found.spec.cause) == (found.spec.by, "holidays")
    assert found.spec.by
    assert world.runs.get(client.post("/v1/runs/r1:retry").json()["id"]).spec.accepts == ""


# Reuse, comparison, plans


def test_a_run_shows_which_stages_it_reused_and_why(world, client):
    basis = ReuseBasis("d1", {"code": "1.0"}, "r0-etl-1", "nothing has changed since r0-etl-1", NOW)
    status = RunStatus(
        "train", stages=(StageDone("etl", "r0-etl-1", NOW, NOW, basis),), basis=ReuseBasis(why="spec: model.train.epochs is 8, was 5")
    )
    world.add_run("r1")
    world.runs.rows["r1"] = replace(world.runs.get("r1"), status=status)
    found = client.get("/v1/runs/r1").json()
    (etl,) = found["stages"]
    assert (etl["reused"], etl["attempt"], etl["why"], etl["digest"]) == (True, "r0-etl-1", "nothing has changed since r0-etl-1", "d1")
    assert found["why"] == "spec: model.train.epochs is 8, was 5"


def test_two_runs_side_by_side(world, client, problem):
    world.add_run("r1", "registered", stages=("etl", "train"), gates=(GateResult("auc at least 0.6", Verdict.PASS, "0.7"),))
    world.add_run("r2", "rejected", stages=("etl",), gates=(GateResult("auc at least 0.6", Verdict.FAIL, "0.5"),))
    spec = replace(world.runs.get("r2").spec, document=stored_document(model={"train": {"epochs": 9}}), cause="more epochs")
    world.runs.rows["r2"] = replace(world.runs.get("r2"), spec=spec)
    world.add_manifest("r1-etl-1", **{"rows": 10.0, "only": 1.0})
    world.add_manifest("r2-etl-1", **{"rows": 12.0})
    found = client.get("/v1/runs/r1/compare?with=r2").json()
    assert found["spec"] == [{"path": "model.train.epochs", "left": 5, "right": 9}]
    assert {"path": "cause", "left": "because", "right": "more epochs"} in found["lineage"]
    assert found["metrics"] == [
        {"metric": "only", "left": 1.0, "right": None, "change": None},
        {"metric": "rows", "left": 10.0, "right": 12.0, "change": 2.0},
    ]
    (gate,) = found["gates"]
    assert (gate["left"]["verdict"], gate["right"]["verdict"]) == ("pass", "fail")
    assert [(one["stage"], one["left_seconds"], one["right_seconds"]) for one in found["stages"]] == [("etl", 0, 0), ("train", 0, None)]
    assert client.get("/v1/runs/r2/compare?with=r1").json() == found, "from the older run to the newer one, whichever is asked first"
    problem(client.get("/v1/runs/r1/compare?with=r9"), 404, "not-found")


def test_a_plan_says_what_would_be_done_and_writes_nothing(world, client, problem, spec_text):
    world.add_recommender()
    found = client.post("/v1/recommenders/m:plan", json={"priority": 3}).json()
    stages = [(one["stage"], one["does"], one["seconds"], one["memory"]) for one in found["stages"]]
    assert stages == [("etl", "reuse", None, None), ("train", "open", 12.5, "8Gi")]
    assert (found["waits"], found["applied"], found["data"]) == ("waits for run r1", True, {"a.csv": "1 byte"})
    assert world.planned.priority == 3
    problem(client.post("/v1/recommenders/m:plan", json={"mode": "warm"}), 409, "conflict")
    new = client.post("/v1/recommenders:plan", content=spec_text.replace('"m"', '"fresh"'))
    assert (new.status_code, new.json()["applied"], new.json()["recommender"]) == (200, False, "fresh")
    assert world.runs.rows == {}
    assert list(world.recommenders.rows) == ["m"]


@pytest.mark.requirement("G-11")
def test_a_run_that_rests_on_a_collected_version_is_not_retried(world, client, problem):
    world.add_run("r1", "failed", ("etl",))
    world.registry.gone = {3: NOW}
    for number, mode, code in ((3, "warm", 409), (3, "full", 202), (2, "warm", 202)):
        record = world.runs.get("r1")
        world.runs.rows["r1"] = replace(record, spec=replace(record.spec, serving=number, mode=mode))
        response = client.post("/v1/runs/r1:retry")
        assert response.status_code == code, response.text
        if code == 409:
            assert "starts from version 3 of 'm', which was collected on 2026-01-01" in problem(response, 409, "conflict")


@pytest.mark.requirement("U-11")
def test_no_warm_run_starts_from_a_version_that_knows_a_forgotten_user(world, client, problem):
    world.add_recommender()
    world.route(stable=1)
    world.past = TrainingHistory((Link("full", {"user": 100}),), knows_forgotten=True)
    detail = problem(client.post("/v1/recommenders/m/runs", json={"mode": "warm"}), 409, "conflict")
    assert "users were forgotten after the serving version read its data: a warm run would know them too; start a full run" in detail
    assert client.post("/v1/recommenders/m/runs", json={"mode": "auto"}).json()["mode"] == "full"
