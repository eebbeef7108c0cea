"""What a run had to prove, what etl has made of its data, and the end of its log, over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shared.contracts.progress import EpochTold, Progress
from shared.contracts.stage import File
from shared.domain.gate import GateResult, Verdict
from shared.domain.run import RunStatus
from tests.support.api_world import NOW, stored_document

GATES = [{"metric": "hr@10", "better_than": "popularity", "by": 0.05}, {"metric": "auc", "min": 0.6}, {"latency_p99": "50ms"}]
FIRST = "hr@10 better than popularity by 5.00%"


def judged(world, state, results=(), stages=("etl", "train", "evaluate")):
    record = world.add_run(state=state, stages=stages, gates=tuple(results))
    world.runs.rows["r1"] = replace(record, spec=replace(record.spec, document=stored_document(gates=GATES)))
    world.add_manifest("r1-evaluate-1", **{"candidate.hr@10": 0.2, "popularity.hr@10": 0.4, "candidate.auc": 0.75})


@pytest.mark.requirement("C-01")
def test_each_gate_says_how_far_its_value_is_from_what_is_needed(world, client):
    failed, passed = GateResult(FIRST, Verdict.FAIL, "too low"), GateResult("auc at least 0.6", Verdict.PASS, "fine")
    judged(world, "rejected", [failed, passed])
    first, second, third = client.get("/v1/runs/r1/gates").json()["gates"]
    assert (first["gate"], first["verdict"], first["reason"], first["against"], first["other"]) == (
        FIRST,
        "fail",
        "too low",
        "popularity",
        0.4,
    )
    assert first["needed"] == pytest.approx(0.42)
    assert first["apart"] == pytest.approx(0.2 / 0.42 - 1)
    assert (second["verdict"], second["needed"], second["other"], second["apart"]) == ("pass", 0.6, None, pytest.approx(0.25))
    assert (third["verdict"], third["stage"], third["value"], third["reason"]) == ("not asked", "verify", None, "")


def test_a_gate_is_open_until_its_stage_has_ended(world, client):
    judged(world, "train", stages=("etl",))
    assert {one["verdict"] for one in client.get("/v1/runs/r1/gates").json()["gates"]} == {"open"}


def test_what_a_full_run_is_not_asked_is_not_there(world, client):
    record = world.add_run(state="train")
    world.runs.rows["r1"] = replace(record, spec=replace(record.spec, document=stored_document(gates=[{"forgotten": 0.05}])))
    assert client.get("/v1/runs/r1/gates").json()["gates"] == []
    world.runs.rows["r1"] = replace(record, spec=replace(world.runs.rows["r1"].spec, mode="warm"))
    assert len(client.get("/v1/runs/r1/gates").json()["gates"]) == 1


def test_features_are_told_with_what_was_found(world, client, problem):
    world.add_run(state="train", stages=("etl",))
    assert "it exists when etl has succeeded" in problem(client.get("/v1/runs/r1/features"), 404, "not-found")
    entries = [
        {"min_count": 2, "max_size": None, "categorify": ["userId", "itemId"]},
        {"of": None, "target_encode": {"of": "genre", "by": ["day"], "smooth": 5}},
    ]
    world.blobs["a" * 64] = json.dumps({"entries": entries, "state": [{}, {"mean": 0.25, "table": ["x"] * 400}]}).encode()
    world.add_manifest("r1-etl-1", {"features.json": File(sha256="a" * 64, size=9)}, **{"rows.train": 80, "etl.stage_seconds": 1.5})
    facts = {"snapshot": "5f1c", "rows": {"file": 100}, "split": {"newest": 0.0}, "cardinalities": {"userId": 7}}
    world.manifests["r1-etl-1"] = world.manifests["r1-etl-1"].model_copy(update={"facts": facts})
    report = client.get("/v1/runs/r1/features").json()
    assert (report["snapshot"], report["rows"], report["cut"]) == ("5f1c", {"file": 100, "train": 80}, None)
    assert report["newest"] == "1970-01-01T00:00:00Z"
    first, second = report["features"]
    assert (first["operator"], first["of"], first["settings"]) == ("categorify", ["userId", "itemId"], {"min_count": 2})
    assert (second["operator"], second["of"], second["settings"]) == ("target_encode", ["genre", "day"], {"smooth": 5})
    assert second["fitted"] == {"mean": 0.25}, "what is too long is no report"
    assert report["tables"] == [{"column": "userId", "codes": 7, "width": None, "bytes": None}]


def test_a_training_report_has_the_losses_of_epochs_and_of_trees(world, client, problem):
    world.add_run(state="evaluate", stages=("etl", "train"))
    problem(client.get("/v1/runs/r1/training"), 404, "not-found")
    look = {"loss": 0.6, "auc": 0.7}
    reports = {
        "epoch": {
            "epochs": [{"epoch": 1, "loss": 0.5, "seconds": 2.0, "rows": 9, "validation": look | {"seconds": 1.0, "rows_per_s": 9.0}}]
        },
        "trees": {"rounds": [{"trees": 10, "loss": 0.5, "seconds": 2.0, "validation": look}]},
    }
    for unit, document in reports.items():
        world.blobs["b" * 64] = json.dumps(document | {"published": {unit: 1}}).encode()
        world.add_manifest("r1-train-1", {"training.json": File(sha256="b" * 64, size=9)}, **{"train.loss": 0.5})
        report = client.get("/v1/runs/r1/training").json()
        assert (report["unit"], report["published"], report["attempt"]) == (unit, 1, "r1-train-1")
        assert report["epochs"] == [{"epoch": 10 if unit == "trees" else 1, "loss": 0.5, "seconds": 2.0, "validation": look}]


def test_a_training_report_of_a_working_stage_has_its_finished_epochs(world, client, problem):
    world.add_run(state="train", stages=("etl",), attempt=1, attempt_since=NOW)
    problem(client.get("/v1/runs/r1/training"), 404, "not-found")
    history = (EpochTold(epoch=1, loss=0.5, seconds=1.0, rows_per_s=9.0, validation={"auc": 0.7}),)
    world.told["r1-train-1"] = Progress(
        at=NOW, epoch=2, epochs=4, step=5, steps=10, loss=0.25, rows_per_s=9.0, seconds_left=6.5, history=history
    )
    report = client.get("/v1/runs/r1/training").json()
    assert report["published"] is None
    assert report["epochs"] == [{"epoch": 1, "loss": 0.5, "seconds": 1.0, "validation": {"auc": 0.7}}]


def test_reports_are_shown_to_whoever_sees_the_recommender(world):
    world.add_run(state="train")
    for path in ("gates", "features", "training"):
        assert world.holder("viewer", ["other"]).get(f"/v1/runs/r1/{path}").status_code == 404
        assert world.holder("client").get(f"/v1/runs/r1/{path}").status_code == 403


def test_the_end_of_a_log_begins_with_a_whole_line(world, client):
    world.add_run(state="train", stages=("etl",), attempt=1)
    world.executor.text["r1-train-1"] = "".join(f"line {number}\n" for number in range(100))
    report = client.get("/v1/runs/r1/logs?stage=train&last=20").json()
    assert report["text"] == "line 98\nline 99\n"
    assert report["next"] == len(world.executor.text["r1-train-1"])
    assert client.get(f"/v1/runs/r1/logs?stage=train&offset={report['start']}").json()["text"] == report["text"]
    assert client.get("/v1/runs/r1/logs?stage=train&last=20000").json()["start"] == 0


def test_a_run_says_since_when_its_stage_is_under_way(world, client):
    world.add_run(state="train", attempt=1, attempt_since=NOW)
    assert client.get("/v1/runs/r1").json()["attempt_since"] == "2026-01-01T00:00:00Z"
    world.runs.rows["r1"] = replace(world.runs.rows["r1"], status=RunStatus(state="failed", attempt=1, attempt_since=NOW))
    assert client.get("/v1/runs/r1").json()["attempt_since"] is None
