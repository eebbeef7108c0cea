"""`eyas apply`, `run`, `runs`, `logs`, `retry`, `plan`, `compare` and `validation`."""

from __future__ import annotations

import json

import pytest

RUN = {
    "id": "r1",
    "recommender": "m",
    "state": "train",
    "reason": "",
    "mode": "full",
    "cause": "the spec is new",
    "created_at": "2026-01-01T00:00:00Z",
    "version": None,
}


def test_apply_sends_the_file_and_says_what_started(platform, eyas, spec_file):
    platform.says("POST /v1/recommenders", {"name": "m", "generation": 1, "run": "r1"}, status=201)
    result = eyas("apply", spec_file)
    assert (result.exit_code, result.stdout) == (0, "m: generation 1, run r1 started\n")
    assert platform.asked[-1].content.decode() == spec_file.read_text()
    assert platform.asked[-1].url.query == b"run=true"
    eyas("apply", spec_file, "--no-run")
    assert platform.asked[-1].url.query == b"run=false"


def test_apply_names_file_and_field_before_anything_is_sent(platform, eyas, spec_file):
    spec_file.write_text(spec_file.read_text() + "rolout: {}\n")
    result = eyas("apply", spec_file)
    assert result.exit_code == 2
    assert f"{spec_file}: unknown field 'rolout': did you mean 'rollout'?" in result.stderr
    assert platform.asked == []


def test_apply_of_a_file_that_is_not_there(eyas, tmp_path):
    result = eyas("apply", tmp_path / "no.yaml")
    assert (result.exit_code, result.stderr) == (2, f"eyas: {tmp_path / 'no.yaml'}: No such file or directory\n")


def test_run_waits_and_shows_each_state_once(platform, eyas):
    platform.says("POST /v1/recommenders/m/runs", {**RUN, "state": "pending"}, status=202)
    platform.says("GET /v1/runs/r1", RUN, RUN, {**RUN, "state": "registered", "reason": "all gates passed"})
    result = eyas("run", "m", "--wait", "--mode", "warm", "--reason", "why not")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["run r1 started", "pending", "train", "registered  all gates passed"]
    assert json.loads(platform.asked[0].content) == {"mode": "warm", "reason": "why not", "priority": 0, "fresh": False}


def test_run_waits_and_shows_each_epoch_once(platform, eyas):
    def at(*epochs, attempt=1):
        history = [{"epoch": number, "loss": 0.5 / number, "seconds": 1.0, "rows_per_s": 1234.5, "validation": {}} for number in epochs]
        history = [one | ({"validation": {"auc": 0.75}} if one["epoch"] == 3 else {}) for one in history]
        return {**RUN, "attempt": attempt, "progress": {"epochs": 3, "history": history}}

    platform.says("POST /v1/recommenders/m/runs", RUN, status=202)
    ends = {**RUN, "state": "registered", "progress": None}
    platform.says("GET /v1/runs/r1", at(), at(1), at(1, 2), at(1, 2, attempt=2), at(1, 2, 3, attempt=2), {**RUN, "progress": None}, ends)
    assert eyas("run", "m", "--wait").stdout.splitlines() == [
        "run r1 started",
        "train",
        "train  epoch 1 of 3, loss 0.5000, 1,234 rows/s",
        "train  epoch 2 of 3, loss 0.2500, 1,234 rows/s",
        "train  epoch 3 of 3, loss 0.1667, validation auc 0.7500, 1,234 rows/s",
        "registered",
    ]


def test_a_run_that_registers_nothing_ends_the_command_with_one(platform, eyas):
    platform.says("POST /v1/recommenders/m/runs", RUN, status=202)
    platform.says("GET /v1/runs/r1", {**RUN, "state": "rejected", "reason": "auc is 0.5 < 0.6"})
    result = eyas("run", "m", "--wait", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["state"] == "rejected"


def test_runs_are_a_table_or_json(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", {"items": [RUN], "next": None})
    table = eyas("runs", "m").stdout
    assert "r1" in table
    assert "2026-01-01 00:00:00" in table
    assert json.loads(eyas("runs", "m", "--json").stdout)["items"] == [RUN]
    platform.says("GET /v1/recommenders/m/runs", {"items": [], "next": None})
    assert eyas("runs", "m").stdout == "m has no run yet\n"


def test_a_row_is_one_line_where_nobody_watches_the_width(platform, eyas):
    long = "a reason that goes on, " * 100
    platform.says("GET /v1/recommenders/m/runs", {"items": [{**RUN, "reason": long + "\nand ends"}], "next": None})
    lines = eyas("runs", "m").stdout.splitlines()
    assert len(lines) == 2
    assert long + " and ends" in lines[1]


def test_no_dead_letter_is_not_called_no_run(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", {"items": [], "next": None})
    assert eyas("runs", "m", "--dead-letter").stdout == "no run of m gave up\n"


def test_no_line_ends_in_blanks_where_nobody_watches_the_width(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", {"items": [{**RUN, "reason": ""}, {**RUN, "reason": "why"}], "next": None})
    assert [line for line in eyas("runs", "m").stdout.splitlines() if line != line.rstrip()] == []


def test_logs_follow_from_stage_to_stage_and_miss_nothing(platform, eyas):
    texts = {"etl": "e1\ne2\n", "train": "t1\n"}
    newest = iter(["etl", "etl", "train", "train"])
    states = [{"state": "etl"}, {"state": "etl"}, {"state": "train"}, {"state": "registered"}]
    cut = iter([3, 99, 99, 99, 99, 99, 99, 99, 99, 99])

    def log(request):
        stage, offset = request.url.params.get("stage"), int(request.url.params["offset"])
        if stage is None:
            return {"text": "", "next": 0, "stage": next(newest), "attempt": "a"}
        text = texts[stage][offset : next(cut)]
        return {"text": text, "next": offset + len(text), "stage": stage, "attempt": "a"}

    platform.says("GET /v1/runs/r1", *states)
    platform.says("GET /v1/runs/r1/logs", log)
    assert eyas("logs", "r1", "--follow").stdout == "e1\ne2\nt1\n"


def test_retry_prioritise_plan_and_compare_ask_for_what_they_say(platform, eyas):
    platform.says("POST /v1/runs/r1:retry", {**RUN, "id": "r2"}, status=202)
    assert eyas("retry", "r1", "--from", "train").stdout == "run r2 started\n"
    assert platform.body == {"from": "train", "reason": ""}
    eyas("retry", "r1", "--accept", "--reason", "holidays")
    assert platform.body == {"from": None, "reason": "holidays", "accept": True}
    platform.says("POST /v1/runs/r1:prioritise", {**RUN, "priority": -5, "reason": "second in the queue"})
    assert eyas("prioritise", "r1", "--", "-5").stdout == "run r1: priority -5, second in the queue\n"
    stages = [
        {"stage": "etl", "does": "reuse", "attempt": "r0-etl-1", "why": "nothing has changed", "seconds": None, "memory": None},
        {"stage": "train", "does": "run", "attempt": None, "why": "the data is new", "seconds": 40.0, "memory": "8Gi"},
        {"stage": "refit", "does": "run", "attempt": None, "why": "the data is new", "seconds": 44.4, "memory": "8Gi"},
    ]
    platform.says(
        "POST /v1/recommenders/m:plan", {"stages": stages, "gates": ["auc at least 0.6"], "waits": None, "warnings": ["i.csv: gone"]}
    )
    shown = eyas("plan", "m").stdout
    assert ["etl", "reuse", "r0-etl-1", "-", "-", "nothing", "has", "changed"] in [line.split() for line in shown.splitlines()]
    assert ["refit", "run", "-", "44.4", "8Gi", "the", "data", "is", "new"] in [line.split() for line in shown.splitlines()]
    assert "time: about 84 s, from the newest run of these stages\n" in shown
    assert "gates: auc at least 0.6\nqueue: the run could start at once\nwarning: i.csv: gone\n" in shown


def test_a_comparison_shows_what_differs_and_what_it_made_of_the_numbers(platform, eyas):
    found = {
        "left": {"id": "r1"},
        "right": {"id": "r2"},
        "spec": [{"path": "model.train.epochs", "left": 5, "right": 8}],
        "lineage": [],
        "metrics": [{"metric": "candidate.auc", "left": 0.5, "right": 0.75, "change": 0.25}],
        "gates": [{"gate": "auc at least 0.6", "left": {"verdict": "fail"}, "right": None}],
        "stages": [{"stage": "etl", "left": {"reused": True}, "right": {"reused": False}, "left_seconds": None, "right_seconds": 2.0}],
    }
    platform.says("GET /v1/runs/r2/compare", found)
    lines = [line.split() for line in eyas("compare", "r2", "r1").stdout.splitlines()]
    assert platform.asked[-1].url.query == b"with=r1"
    for line in (
        ["METRIC", "r1", "r2", "CHANGE"],
        ["spec:", "model.train.epochs", "5", "8"],
        ["candidate.auc", "0.5", "0.75", "0.25"],
        ["auc", "at", "least", "0.6", "fail", "-"],
        ["etl", "reused", "2"],
    ):
        assert line in lines


@pytest.mark.requirement("G-05")
def test_the_report_of_a_runs_data_is_shown_the_worst_first(platform, eyas):
    check = {"unit": "share", "warn": 0.0, "stop": 0.05}
    report = {
        "recommender": "m",
        "source": "ratings/*.parquet",
        "verdict": "stop",
        "rows": {"read": 10, "kept": 7, "quarantined": 3},
        "reasons": {"userId: missing": 3},
        "files": ["a.parquet"],
        "faulty": [{"name": "b.parquet", "size": 12, "sha256": "c" * 64, "fault": "it can't be read"}],
        "checks": [
            {**check, "name": "files", "verdict": "warn", "figure": 0.01, "says": "1 file can't be read: b.parquet"},
            {**check, "name": "missing", "column": "userId", "verdict": "stop", "figure": 0.3, "says": "column 'userId' has 3 nulls"},
        ],
        "compared": False,
        "sections": [
            {
                "name": "items",
                "source": "films.parquet",
                "verdict": "warn",
                "rows": {"read": 5, "kept": 4, "quarantined": 1},
                "reasons": {"repeats an earlier row": 1},
                "checks": [{**check, "name": "bad rows", "verdict": "warn", "figure": 0.2, "says": "1 of 5 rows are quarantined"}],
                "compared": False,
            }
        ],
    }
    platform.says("GET /v1/runs/r1/validation", report)
    lines = eyas("validation", "r1").stdout.splitlines()
    assert lines[0] == "ratings/*.parquet: 10 rows read, 7 kept, 3 quarantined"
    assert [line.split()[:2] for line in lines[2:4]] == [["stop", "missing"], ["warn", "files"]]
    assert "30.00%  5.00%" in lines[2]
    assert lines[4].startswith("not read: b.parquet (12 bytes, sha256 cccccccccccccccc): it can't be read")
    assert lines[6] == "items: films.parquet: 5 rows read, 4 kept, 1 quarantined"
    assert lines[8].split()[:3] == ["warn", "bad", "rows"]
