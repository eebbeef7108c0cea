"""`eyas versions`, `rollout`, `rollback` and `serving`."""

from __future__ import annotations

import json
import re

import pytest

from services.cli.exit_codes import Exit

ROLLOUT = {"id": "r1-rollout", "recommender": "m", "version": 2, "state": "canary", "reason": "no evidence of harm", "reports": []}


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
    assert (result.exit_code, result.stdout) == (0, f"r1-rollout: {verb} requested\n")
    assert platform.body == {"reason": "look closer"}


def test_a_rollout_that_waits_does_not_hide_the_one_that_has_users(platform, eyas):
    waits = {**ROLLOUT, "id": "r2-rollout", "version": 3, "state": "pending"}

    def listed(request):
        states = request.url.params.get_list("state")
        return {"items": [one for one in (waits, ROLLOUT) if not states or one["state"] in states][:1], "next": None}

    platform.says("GET /v1/recommenders/m/rollouts", listed)
    platform.says("POST /v1/rollouts/r1-rollout:abort", ROLLOUT, status=202)
    assert eyas("rollout", "abort", "m").stdout == "r1-rollout: abort requested\n"
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
    assert "waits for the end of rollout r1-rollout of version 2, which is paused" in eyas("rollout", "start", "m", "7").stdout


@pytest.mark.requirement("C-05")
def test_a_rollout_that_cannot_be_started_says_why(platform, eyas):
    message = "rollout r1-rollout of version 2 is already canary: wait until it has ended, or use one of: abort, pause"
    platform.refuses("POST /v1/recommenders/m/rollouts", 409, "conflict", message)
    result = eyas("rollout", "start", "m", "2")
    assert (result.exit_code, result.stdout) == (Exit.WRONG, "")
    assert message in result.stderr
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
    assert "rollout o1 loads this version" in eyas("rollback", "m", "--to", "2", "--reason", "it smells").stdout
    assert platform.body == {"reason": "it smells", "to": 2}
    assert eyas("rollback", "m", "--to", "0").exit_code == 2


def test_rollback_is_one_call(platform, eyas):
    platform.says("POST /v1/recommenders/m:rollback", {"stable": 1, "aborted": ["r2-rollout"], "rollout": None}, status=202)
    assert eyas("rollback", "m").stdout == "m: version 1 is stable (aborting: r2-rollout)\n"


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
