"""`--watch` into a pipe: a line for each change, a line of JSON for each new response, and the exit code."""

from __future__ import annotations

import json

import httpx
import pytest

from services.cli import watching
from services.cli.exit_codes import Exit

RUN = {"id": "r1", "recommender": "m", "state": "train", "reason": "", "progress": None}
ROW = RUN | {"mode": "full", "cause": "by hand", "created_at": "2026-01-01T00:00:00Z", "version": None}
ROLLOUT = {"id": "r1-rollout", "recommender": "m", "version": 2, "state": "canary", "reason": "", "reports": []}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(watching, "EVERY", 0)


@pytest.mark.parametrize(("end", "code"), [("registered", Exit.DONE), ("rejected", Exit.NO), ("failed", Exit.NO), ("cancelled", Exit.NO)])
def test_a_watched_run_ends_with_the_code_of_its_end(platform, eyas, end, code):
    platform.says("POST /v1/recommenders/m/runs", RUN | {"state": "pending"}, status=202)
    platform.says("GET /v1/runs/r1", RUN, RUN, RUN | {"state": end, "reason": "so it is"})
    found = eyas("run", "m", "--watch")
    assert found.exit_code == code
    assert found.stdout.splitlines() == ["run r1 of m: pending", "run r1 of m: train", f"run r1 of m: {end}  so it is"]


@pytest.mark.parametrize(("end", "code"), [("promoted", Exit.DONE), ("rolled_back", Exit.NO), ("aborted", Exit.NO)])
def test_a_watched_rollout_ends_with_the_code_of_its_end_over_a_pause(platform, eyas, end, code):
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [ROLLOUT], "next": None})
    platform.says("GET /v1/rollouts/r1-rollout", ROLLOUT | {"state": "paused"}, ROLLOUT | {"state": end})
    found = eyas("rollout", "status", "m", "--watch")
    assert found.exit_code == code
    assert [line.split()[4] for line in found.stdout.splitlines() if line.startswith("r1-rollout")] == [
        "canary",
        "paused",
        end.split("_")[0],
    ]


def test_the_rollout_of_a_run_under_way_is_watched_and_not_the_one_that_ended_before_it(platform, eyas):
    """As right after `eyas apply`: the newest rollout is that of the version before."""
    old, new = ROLLOUT | {"id": "r0-rollout", "state": "promoted"}, ROLLOUT | {"state": "loading"}
    runs = iter([ROW, ROW, ROW | {"state": "registered"}])
    now = {"rollouts": [old]}

    def run(_):
        found = next(runs)
        now["rollouts"] = [new] if found["state"] == "registered" else [old]
        return {"items": [found], "next": None}

    def rollouts(request):
        states = request.url.params.get_list("state")
        return {"items": [one for one in now["rollouts"] if not states or one["state"] in states], "next": None}

    platform.says("GET /v1/recommenders/m/runs", run)
    platform.says("GET /v1/recommenders/m/rollouts", rollouts)
    platform.says("GET /v1/rollouts/r1-rollout", ROLLOUT | {"state": "rolled_back"})
    found = eyas("rollout", "status", "m", "--watch")
    assert found.exit_code == Exit.NO
    assert found.stderr == "run r1 is active: waiting for its rollout\n"
    assert all(line.startswith(("r1-rollout", "no step")) for line in found.stdout.splitlines())


def test_a_run_that_is_waited_for_and_registers_nothing_ends_the_watch(platform, eyas):
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [], "next": None})
    rejected = ROW | {"state": "rejected", "reason": "hr@10 is 0.1, not at least 0.2"}
    platform.says("GET /v1/recommenders/m/runs", {"items": [ROW], "next": None}, {"items": [rejected], "next": None})
    found = eyas("rollout", "status", "m", "--watch")
    assert found.exit_code == Exit.NO
    assert "run r1 ended as rejected, so no rollout starts: hr@10 is 0.1, not at least 0.2" in found.stderr


def test_the_same_rollout_is_watched_though_a_newer_one_begins(platform, eyas):
    newer = ROLLOUT | {"id": "r2-rollout"}
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [ROLLOUT], "next": None}, {"items": [newer], "next": None})
    platform.says("GET /v1/rollouts/r1-rollout", ROLLOUT | {"state": "promoted"})
    assert eyas("rollout", "status", "m", "--watch").exit_code == Exit.DONE


def endless(platform, question, *answers):
    """After the last answer somebody presses Ctrl-C."""
    platform.says(question, *answers, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))


def test_a_row_that_is_new_or_other_is_a_line_and_the_rest_is_not_said_again(platform, eyas):
    first, second = ROW, ROW | {"id": "r2", "state": "pending"}
    endless(
        platform,
        "GET /v1/recommenders/m/runs",
        {"items": [first], "next": None},
        {"items": [first], "next": None},
        {"items": [second, first], "next": None},
        {"items": [second, first | {"state": "registered", "version": 1}], "next": None},
    )
    found = eyas("runs", "m", "--watch")
    assert found.exit_code == Exit.INTERRUPTED
    assert [line.split()[:2] for line in found.stdout.splitlines()] == [
        ["RUN", "STATE"],
        ["r1", "train"],
        ["r2", "pending"],
        ["r1", "registered"],
    ]


def test_json_is_one_line_for_each_answer_that_differs(platform, eyas):
    answers = [{"items": [ROW | {"state": one}], "next": None} for one in ("pending", "pending", "train")]
    endless(platform, "GET /v1/recommenders/m/runs", *answers)
    found = eyas("runs", "m", "--watch", "--json")
    assert [json.loads(line)["items"][0]["state"] for line in found.stdout.splitlines()] == ["pending", "train"]


WATCHED = {
    "recommenders": "GET /v1/recommenders",
    "runs m": "GET /v1/recommenders/m/runs",
    "versions m": "GET /v1/recommenders/m/versions",
    "history m": "GET /v1/recommenders/m/history",
    "kpis m": "GET /v1/recommenders/m/kpis",
    "kpis m --series": "GET /v1/recommenders/m/kpis/series",
    "drift m": "GET /v1/recommenders/m/drift",
    "triggers m": "GET /v1/recommenders/m/triggers",
    "triggers m --history": "GET /v1/recommenders/m/triggers/history",
    "serving": "GET /v1/serving",
    "features list m": "GET /v1/features/m",
}


def test_each_list_can_be_watched(platform, eyas, subtests):
    for words, request in WATCHED.items():
        with subtests.test(words=words):
            endless(platform, request, {"look": 1}, {"look": 2})
            found = eyas(*words.split(), "--watch", "--json")
            assert (found.exit_code, found.stdout) == (Exit.INTERRUPTED, '{"look": 1}\n{"look": 2}\n')


def test_a_platform_that_is_away_for_a_moment_is_waited_for_and_said_once(platform, eyas):
    away = httpx.ConnectError("refused")
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [ROLLOUT], "next": None})
    platform.says("GET /v1/rollouts/r1-rollout", away, away, ROLLOUT | {"state": "promoted"})
    found = eyas("rollout", "status", "m", "--watch")
    assert found.exit_code == Exit.DONE
    assert found.stderr.count("nothing answers at") == 1
    assert "trying again" in found.stderr


def test_who_waits_for_a_run_waits_for_its_platform_too(platform, eyas):
    away = httpx.ConnectError("refused")
    platform.says("POST /v1/recommenders/m/runs", RUN, status=202)
    platform.says("GET /v1/runs/r1", away, away, RUN | {"state": "registered"})
    found = eyas("run", "m", "--wait")
    assert (found.exit_code, found.stderr.count("trying again")) == (Exit.DONE, 1)


def test_a_log_is_followed_over_a_stop_of_the_platform(platform, eyas):
    away = httpx.ConnectError("refused")
    platform.says("GET /v1/runs/r1", RUN, away, RUN | {"state": "registered"})
    pieces = {"0": "a\n", "2": "b\n"}

    def log(request):
        offset = request.url.params.get("offset", "0")
        text = pieces.pop(offset, "") if request.url.params.get("stage") else ""
        return {"stage": "train", "attempt": "r1-train-1", "text": text, "start": int(offset), "next": int(offset) + len(text)}

    platform.says("GET /v1/runs/r1/logs", log)
    found = eyas("logs", "r1", "--follow")
    assert (found.exit_code, found.stdout) == (Exit.DONE, "a\nb\n"), found.output
    assert found.stderr.count("trying again") == 1
    platform.says("GET /v1/runs/r1", away)
    assert eyas("logs", "r1", "--follow").exit_code == Exit.AWAY, "one that was never there isn't waited for"


def test_one_that_stays_away_or_was_never_there_ends_it(platform, eyas, monkeypatch):
    away = httpx.ConnectError("refused")
    platform.says("GET /v1/recommenders/m/runs", away)
    assert eyas("runs", "m", "--watch").exit_code == Exit.AWAY
    monkeypatch.setattr(watching, "PATIENCE", 0)
    platform.says("GET /v1/recommenders/m/runs", {"items": [], "next": None}, away)
    assert eyas("runs", "m", "--watch").exit_code == Exit.AWAY


def test_a_fault_of_the_user_is_not_waited_for(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", {"items": [], "next": None})
    gone = {"type": "x/not-found", "detail": "no recommender is called 'm'"}
    platform.answers["GET /v1/recommenders/m/runs"].append((404, gone))
    assert eyas("runs", "m", "--watch").exit_code == Exit.WRONG
