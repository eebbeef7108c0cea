"""What each command asks of the platform, and what it shows."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest

from services.cli.exits import Exit

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
ROLLOUT = {"id": "r1-rollout", "recommender": "m", "version": 2, "state": "canary", "reason": "no evidence of harm", "reports": []}


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


def test_versions_show_the_models_own_numbers(platform, eyas):
    version = {"version": 3, "created_at": "2026-01-01T00:00:00Z", "run": "r1", "lineage": {"mode": "warm"}, "parent": 2}
    version |= {"aliases": [], "tags": [], "collected_at": None}
    numbers = {"candidate.hr@10": 0.4123, "popularity.hr@10": 0.3}
    platform.says("GET /v1/recommenders/m/versions", {"items": [{**version, "metrics": numbers}], "next": None})
    shown = eyas("versions", "m").stdout
    assert "hr@10 0.4123" in shown
    assert "popularity" not in shown


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("verb", ["pause", "resume", "skip", "promote", "abort"])
def test_the_newest_rollout_is_steered_by_the_recommenders_name(platform, eyas, verb):
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [ROLLOUT], "next": None})
    platform.says(f"POST /v1/rollouts/r1-rollout:{verb}", ROLLOUT, status=202)
    result = eyas("rollout", verb, "m", "--reason", "look closer")
    assert (result.exit_code, result.stdout) == (0, f"r1-rollout: {verb} asked for\n")
    assert platform.body == {"reason": "look closer"}


def test_a_rollout_that_waits_does_not_hide_the_one_that_has_users(platform, eyas):
    waits = {**ROLLOUT, "id": "r2-rollout", "version": 3, "state": "pending"}

    def listed(request):
        states = request.url.params.get_list("state")
        return {"items": [one for one in (waits, ROLLOUT) if not states or one["state"] in states][:1], "next": None}

    platform.says("GET /v1/recommenders/m/rollouts", listed)
    platform.says("POST /v1/rollouts/r1-rollout:abort", ROLLOUT, status=202)
    assert eyas("rollout", "abort", "m").stdout == "r1-rollout: abort asked for\n"
    assert eyas("rollout", "status", "m").stdout.startswith("r1-rollout: version 2 is canary")


@pytest.mark.requirement("C-05")
def test_a_rollout_is_started_by_hand(platform, eyas):
    made = {**ROLLOUT, "id": "o1", "version": 7, "state": "pending"}
    platform.says("POST /v1/recommenders/m/rollouts", made, status=201)
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [], "next": None})
    result = eyas("rollout", "start", "m", "7", "--reason", "it was the network")
    assert json.loads(platform.asked[0].content) == {"version": 7, "reason": "it was the network"}
    assert (result.exit_code, result.stdout) == (0, "o1: version 7 of m is pending: eyas rollout status m --id o1 --watch\n")
    asked = len(platform.asked)
    assert json.loads(eyas("rollout", "start", "m", "7", "--json").stdout) == made
    assert len(platform.asked) == asked + 1, "for its JSON nothing else is asked"


@pytest.mark.requirement("C-05")
def test_a_rollout_that_is_started_says_behind_which_one_it_waits(platform, eyas):
    platform.says("POST /v1/recommenders/m/rollouts", {**ROLLOUT, "id": "o1", "version": 7, "state": "pending"}, status=201)
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [{**ROLLOUT, "state": "paused"}], "next": None})
    assert "it waits until rollout r1-rollout of version 2 has ended, which is paused" in eyas("rollout", "start", "m", "7").stdout


@pytest.mark.requirement("C-05")
def test_a_rollout_that_cannot_be_started_says_why(platform, eyas):
    said = "rollout r1-rollout of version 2 is canary already: wait until it has ended, or steer that one (abort, pause)"
    platform.refuses("POST /v1/recommenders/m/rollouts", 409, "conflict", said)
    result = eyas("rollout", "start", "m", "2")
    assert (result.exit_code, result.stdout) == (Exit.WRONG, "")
    assert said in result.stderr
    for wrong in ("0", "-1", "serving"):
        assert eyas("rollout", "start", "m", wrong).exit_code == 2


def test_a_rollout_of_another_recommender_is_not_touched(platform, eyas):
    platform.says("GET /v1/rollouts/x", {**ROLLOUT, "recommender": "other"})
    result = eyas("rollout", "abort", "m", "--id", "x")
    assert result.exit_code == 2
    assert "belongs to 'other'" in result.stderr


def test_the_status_of_a_rollout_shows_its_steps(platform, eyas):
    side = {"users": 210, "answers": 300, "hits": 80, "mean": 0.25}
    checks = [
        {"name": "goal", "verdict": "pass", "reason": "no evidence of harm"},
        {"name": "latency_p99", "verdict": "pass", "reason": "p99 is 3 ms"},
    ]
    bounds = {"lift": 0.01, "lower": -0.02, "upper": None}
    sides = {"stable": side, "candidate": {**side, "users": 200}}
    report = {"weight": 0.005, "verdict": "pass", "reason": "", "checks": checks, **sides, **bounds}
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [{**ROLLOUT, "reports": [report]}], "next": None})
    shown = eyas("rollout", "status", "m").stdout
    assert "version 2 is canary" in shown
    assert "210 / 200" in shown
    assert "0.5%" in shown
    assert "+1.0%" in shown
    for said in ("goal", "no evidence of harm", "latency_p99", "p99 is 3 ms"):
        assert said in shown


def test_a_paused_rollout_says_what_may_be_asked_of_it_and_what_its_shadow_showed(platform, eyas):
    found = {**ROLLOUT, "state": "paused", "shadow": {"verdict": "pass", "reason": "200 requests compared"}}
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [found], "next": None})
    shown = eyas("rollout", "status", "m").stdout
    assert "shadow: pass  200 requests compared" in shown
    assert "eyas rollout resume, skip, promote or abort m" in shown


def test_a_recommender_without_a_rollout_says_so(platform, eyas):
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [], "next": None})
    assert "has no rollout yet" in eyas("rollout", "status", "m").stderr


def test_rollback_names_a_version_and_says_what_loads_it(platform, eyas):
    platform.says("POST /v1/recommenders/m:rollback", {"stable": 5, "aborted": [], "rollout": "o1"}, status=202)
    assert "rollout o1 loads the other version" in eyas("rollback", "m", "--to", "2", "--reason", "it smells").stdout
    assert platform.body == {"reason": "it smells", "to": 2}
    assert eyas("rollback", "m", "--to", "0").exit_code == 2


def test_rollback_is_one_call(platform, eyas):
    platform.says("POST /v1/recommenders/m:rollback", {"stable": 1, "aborted": ["r2-rollout"], "rollout": None}, status=202)
    assert eyas("rollback", "m").stdout == "m: version 1 is the stable one (asked to abort: r2-rollout)\n"


def test_recommend_says_who_answered_and_whether_it_fell_back(platform, eyas):
    answer = {"request_id": "q1", "version": 1, "variant": "stable", "items": [{"item": 7, "score": None}], "fallback": "unknown user"}
    platform.says("POST /v1/recommend/m", answer)
    shown = eyas("recommend", "m", 5, "-k", 1).stdout
    assert "not its own: unknown user" in shown
    assert platform.body == {"user": 5, "k": 1}


def test_an_explained_answer_says_what_each_stage_did_and_why_items_stand_there(platform, eyas):
    told = {
        "milliseconds": {"score": 3.5},
        "together": 1,
        "retrieved": 500,
        "filtered": 23,
        "scored": True,
        "explored": None,
        "rules": [["pinned at 1: 7"]],
    }
    answer = {
        "request_id": "q1",
        "version": 1,
        "variant": "stable",
        "items": [{"item": 7, "score": 0.5}],
        "fallback": None,
        "explain": told,
    }
    platform.says("POST /v1/recommend/m", answer)
    shown = eyas("recommend", "m", 5, "--explain").stdout
    assert "500 candidates, 23 filtered; score 3.5 ms" in shown
    assert "pinned at 1: 7" in shown


def test_similar_lists_items_by_their_likeness(platform, eyas):
    platform.says("POST /v1/similar/m", {"version": 3, "items": [{"item": 7, "score": 0.75}]})
    assert "0.75" in eyas("similar", "m", 5, "-k", 1).stdout
    assert platform.body == {"item": 5, "k": 1}


def test_serving_shows_each_replica_with_its_versions_or_why_it_has_none(platform, eyas):
    one = {"name": "triton-1", "state": "ready", "versions": {"m": [1, 2], "n": [4]}, "fault": None}
    two = {"name": "triton-2", "state": "down", "versions": {}, "fault": "Triton doesn't answer"}
    server = {"version": "2.51.0", "models": [], "replicas": [one, two], "fault": None}
    platform.says("GET /v1/serving", {"server": server, "routes": {}, "successes": {}})
    lines = [re.split(r"  +", line.strip()) for line in eyas("serving").stdout.splitlines()]
    assert lines[1:] == [["triton-1", "ready", "m 1 2, n 4"], ["triton-2", "down", "Triton doesn't answer"]]
    assert json.loads(eyas("serving", "--json").stdout)["server"] == server
    away = {"version": None, "models": [], "replicas": [], "fault": "no Triton serves"}
    platform.says("GET /v1/serving", {"server": away, "routes": {}, "successes": {}})
    assert "no Triton answers: no Triton serves" in eyas("serving").stdout


def test_events_are_sent_in_batches_under_the_name(platform, eyas, tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_text("".join(json.dumps({"user": n, "item": 1}) + "\n" for n in range(1500)) + "\n")
    platform.says("POST /v1/events", taken(1000, 3), taken(500, 1), status=202)
    assert eyas("events", "m", file).stdout == "m: 1500 events taken in, 4 answers became hits\n"
    assert [len(json.loads(request.content)["events"]) for request in platform.asked] == [1000, 500]
    assert platform.body["events"][0] == {"recommender": "m", "user": 1000, "item": 1}


def taken(accepted, hits, duplicates=0):
    return {"accepted": accepted, "hits": hits, "duplicates": duplicates}


def test_what_was_known_already_or_is_found_out_later_is_said(platform, eyas, tmp_path):
    file = tmp_path / "e.jsonl"
    shown = {"kind": "impression", "user": 1, "items": [1, 2], "request_id": "p"}
    file.write_text(json.dumps(shown) + "\n" + json.dumps({"user": 1, "item": 1, "id": "a", "request_id": "p"}) + "\n")
    platform.says("POST /v1/events", taken(2, 0, 2), taken(2, None, None), status=202)
    assert eyas("events", "m", file).stdout == "m: 2 events taken in, 2 of them known already, 0 answers became hits\n"
    assert platform.body["events"][0] == shown | {"recommender": "m"}
    assert eyas("events", "m", file).stdout == "m: 2 events taken in, what they earn shows in a moment\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"user": 1}', "item: field required"),
        ('{"user": 1, "item": 1, "recommender": "x"}', "'x'"),
    ],
)
def test_a_bad_line_is_named_by_its_number_before_anything_is_sent(platform, eyas, tmp_path, line, said):
    file = tmp_path / "e.jsonl"
    file.write_text('{"user": 1, "item": 2}\n' + line + "\n")
    result = eyas("events", "m", file)
    assert result.exit_code == 2
    assert f"{file}:2: " in result.stderr
    assert said in result.stderr
    assert platform.asked == []


def test_drift_shows_sentences_and_readings_and_the_retrainer(platform, eyas):
    held = [{"trigger": "drift", "by": "it cools down", "since": "2026-01-01T00:00:00Z", "dropped": False, "said": "psi 0.4"}]
    retrainer = {"state": "cooling", "reason": "version 3 promoted", "run": "r2", "until": None, "held": held}
    moved = {"feature": "genres", "detector": "psi", "size": 0.4, "threshold": 0.2, "chance": 1e-7, "stands": True}
    readings = [moved | {"since": "2026-01-01T00:00:00Z"}, moved | {"feature": "year", "size": 0.01, "stands": False, "since": None}]
    said = ["drift of genres: psi 0.400 (comedy from 20.0% to 50.0%)"]
    platform.says("GET /v1/recommenders/m/drift", {"said": said, "readings": readings, "retrainer": retrainer})
    shown = eyas("drift", "m").stdout
    assert shown.startswith("drift of genres: psi 0.400 (comedy from 20.0% to 50.0%)\n")
    assert shown.index("2026-01-01 00:00:00") < shown.index("year")
    assert "retrainer: cooling  version 3 promoted" in shown
    assert "held back: drift since 2026-01-01 00:00:00: it cools down" in shown


@pytest.mark.requirement("C-03")
def test_triggers_shows_what_may_start_a_retraining_and_when(platform, eyas):
    one = {
        "trigger": "kpi",
        "mode": "full",
        "fires": True,
        "found": "it fell",
        "value": -0.2,
        "threshold": -0.1,
        "held_by": "it cools down",
    }
    schedule = {"timezone": "Europe/Berlin", "next": "2026-01-02T02:00:00Z", "next_local": "2026-01-02T03:00:00+01:00"}
    firing = {"at": "2026-01-01T00:00:00Z", "trigger": "kpi", "run": "m-retrain-1"}
    retrainer = {"state": "cooling", "reason": "promoted", "run": "r2", "until": None, "held": []}
    body = {"triggers": [one], "schedule": schedule, "max_per_day": 3, "firings": [firing], "retrainer": retrainer}
    platform.says("GET /v1/recommenders/m/triggers", body)
    shown = eyas("triggers", "m").stdout
    assert "it cools down" in shown
    assert "next: 2026-01-02 02:00:00 UTC, 2026-01-02T03:00:00+01:00 in Europe/Berlin" in shown
    assert "in the last 24 hours: 1 of at most 3 (kpi at 2026-01-01 00:00:00)" in shown
    line = {"at": "2026-01-01T00:00:00Z", "source": "watching", "target": "watching", "reason": "held back: run r1", "actor": "eyas"}
    platform.says("GET /v1/recommenders/m/triggers/history", {"items": [line], "next": None})
    assert "held back: run r1" in eyas("triggers", "m", "--history").stdout


def test_cancel_retrain_and_kpis_ask_for_what_they_say(platform, eyas):
    platform.says("POST /v1/runs/r1:cancel", RUN, status=202)
    assert eyas("cancel", "r1").exit_code == 0
    platform.says("POST /v1/recommenders/m:retrain", {}, status=202)
    assert eyas("retrain", "m").exit_code == 0
    earned = {"version": 1, "answers": 9, "hits": 3, "hit_rate": 1 / 3, "conversion": 0.1, "revenue_per_answer": 2.5, "engagement": 0.4}
    earned = earned | {"coverage": 0.25, "novelty": None, "variants": {"stable": earned}, "slices": {"germany": earned}}
    platform.says("GET /v1/recommenders/m/kpis", {"window": "6h", "versions": [earned]})
    shown = eyas("kpis", "m", "--window", "6h").stdout
    assert "0.3333" in shown
    assert "germany" not in shown
    assert "germany" in eyas("kpis", "m", "--parts").stdout
    points = [earned | {"ends": f"2026-01-01T12:0{minute}:00Z"} for minute in (0, 5)]
    platform.says("GET /v1/recommenders/m/kpis/series", {"window": "1h", "step": "5m", "versions": [{"version": 1, "points": points}]})
    said = eyas("kpis", "m", "--series", "--points", "2").stdout
    assert "2026-01-01 12:05" in said


@pytest.mark.requirement("C-09")
def test_up_hands_its_options_to_the_platform_and_ends_with_its_code(eyas, home, monkeypatch):
    called = []
    fake = SimpleNamespace(serve=lambda *given: called.append(given) or 7)
    monkeypatch.setitem(sys.modules, "services.wiring", fake)
    monkeypatch.setattr("services.wiring", fake, raising=False)
    assert eyas("up", "--port", "0", "--data-root", "a", "--data-root", "b", "--tritons", "2").exit_code == 7
    roots = ["a", "b"]
    assert called == [({"role": "all", "home": home, "port": 0, "metrics_port": None, "data_roots": roots, "triton_replicas": 2},)]


def test_serve_starts_one_part_and_knows_no_other_words(eyas, monkeypatch):
    called = []
    fake = SimpleNamespace(serve=lambda given: called.append(given) or 0)
    monkeypatch.setitem(sys.modules, "services.wiring", fake)
    monkeypatch.setattr("services.wiring", fake, raising=False)
    assert eyas("serve", "--role", "gateway", "--host", "0.0.0.0", "--port", "8080").exit_code == 0
    assert called == [{"role": "gateway", "host": "0.0.0.0", "port": 8080, "metrics_port": None}]
    assert eyas("serve", "--role", "all").exit_code == 2
    assert eyas("serve").exit_code == 2


def test_the_commands_need_no_platform_code_to_be_listed(eyas):
    result = eyas("--help")
    assert result.exit_code == 0
    for name in ["up", "apply", "run", "runs", "logs", "versions", "rollout", "rollback", "recommend", "events", "drift", "doctor"]:
        assert f"  {name} " in result.stdout


def test_retry_prioritise_plan_and_compare_ask_for_what_they_say(platform, eyas):
    platform.says("POST /v1/runs/r1:retry", {**RUN, "id": "r2"}, status=202)
    assert eyas("retry", "r1", "--from", "train").stdout == "run r2 started\n"
    assert platform.body == {"from": "train", "reason": ""}
    eyas("retry", "r1", "--accept", "--reason", "holidays")
    assert platform.body == {"from": None, "reason": "holidays", "accept": True}
    platform.says("POST /v1/runs/r1:prioritise", {**RUN, "priority": -5, "reason": "second in the queue"})
    assert eyas("prioritise", "r1", "--", "-5").stdout == "run r1: priority -5, second in the queue\n"
    stages = [{"stage": "etl", "does": "reuse", "attempt": "r0-etl-1", "why": "nothing has changed"}]
    platform.says(
        "POST /v1/recommenders/m:plan", {"stages": stages, "gates": ["auc at least 0.6"], "waits": None, "warnings": ["i.csv: gone"]}
    )
    shown = eyas("plan", "m").stdout
    assert "r0-etl-1  nothing has changed" in shown
    assert "gates: auc at least 0.6\nqueue: it could begin at once\nwarning: i.csv: gone\n" in shown


def test_a_comparison_shows_what_differs_and_what_it_made_of_the_numbers(platform, eyas):
    found = {
        "spec": [{"path": "model.train.epochs", "left": 5, "right": 8}],
        "lineage": [],
        "metrics": [{"metric": "candidate.auc", "left": 0.5, "right": 0.75, "change": 0.25}],
        "gates": [{"gate": "auc at least 0.6", "left": {"verdict": "fail"}, "right": None}],
        "stages": [{"stage": "etl", "left": {"reused": True}, "right": {"reused": False}, "left_seconds": None, "right_seconds": 2.0}],
    }
    platform.says("GET /v1/runs/r1/compare", found)
    lines = [line.split() for line in eyas("compare", "r1", "r2").stdout.splitlines()]
    assert platform.asked[-1].url.query == b"with=r2"
    for line in (
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
