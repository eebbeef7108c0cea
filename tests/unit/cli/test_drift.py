"""`eyas drift`, `triggers`, `retrain`, `cancel` and `kpis`."""

from __future__ import annotations

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
