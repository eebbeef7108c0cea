"""What may start a retraining, over HTTP; and Alertmanager's webhook, with the payload that its documentation shows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.domain.access import Role
from shared.domain.drift.alarm_decision import NOTHING_YET, remember
from shared.domain.machine import Request
from shared.domain.triggers import Firing, HeldTrigger, RetrainerObservation
from shared.domain.warm_or_full import Link, TrainingHistory
from shared.ports import HistoryEntry
from tests.support.api_world import NOW, World
from tests.support.drift_readings import look

# Version 4 of the payload, as Alertmanager sends it: with all that isn't read, and nanoseconds.
PAYLOAD = """{
  "receiver": "eyas", "status": "firing",
  "alerts": [{
    "status": "firing",
    "labels": {"alertname": "HitRateLow", "recommender": "m", "severity": "page", "instance": "localhost:9090"},
    "annotations": {"summary": "The hit rate fell\\nby a third", "description": "..."},
    "startsAt": "2026-01-01T11:52:26.739266876+02:00", "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://localhost:9090/graph?g0.expr=up", "fingerprint": "c6eadffa33fcdf37"
  }],
  "groupLabels": {"alertname": "HitRateLow"}, "commonLabels": {"alertname": "HitRateLow"}, "commonAnnotations": {},
  "externalURL": "http://localhost:9093", "version": "4", "groupKey": "{}:{alertname=\\"HitRateLow\\"}", "truncatedAlerts": 0
}"""
KEY = "c6eadffa33fcdf37@2026-01-01T11:52:26.739266+02:00"
LISTED = {"on": [{"alert": {"names": ["HitRateLow", "DriftHigh"]}}], "max_per_day": 1}


def payload(*changes):
    document = json.loads(PAYLOAD)
    first = document["alerts"][0]
    document["alerts"] = [first | change for change in changes] if changes else [first]
    return document


def labels(**changes):
    return {"labels": {"alertname": "HitRateLow", "recommender": "m"} | changes}


def outcomes(response):
    assert response.status_code == 200, response.text
    return [one["outcome"] for one in response.json()["alerts"]]


@pytest.fixture
def world(world):
    world.add_recommender(retrain=LISTED)
    return world


@pytest.mark.requirement("C-03")
def test_an_alert_that_the_spec_lists_asks_the_retrainer(world, client):
    world.add_retrainer()
    answer = client.post("/v1/alerts", content=PAYLOAD, headers={"Content-Type": "application/json"})
    assert answer.json()["alerts"] == [
        {"fingerprint": "c6eadffa33fcdf37", "alertname": "HitRateLow", "outcome": "asked", "detail": "a retraining starts"}
    ]
    assert world.retrainers.get("m").request == Request("alert", "alertmanager", "HitRateLow: The hit rate fell by a third", KEY)
    assert world.woken == 1


@pytest.mark.requirement("C-03")
def test_what_is_delivered_again_asks_for_nothing_more(world, client):
    world.add_retrainer()
    assert outcomes(client.post("/v1/alerts", json=payload({}, {}))) == ["asked", "asked"]
    assert world.woken == 1
    world.retrainers.rows["m"] = replace(world.retrainers.rows["m"], request=None)
    world.retrainers.rows["m"] = replace(world.retrainers.rows["m"], status=replace(world.retrainers.rows["m"].status, alerts=(KEY,)))
    assert outcomes(client.post("/v1/alerts", json=payload())) == ["taken already"]
    again = {"startsAt": "2026-01-02T00:00:00Z"}
    assert outcomes(client.post("/v1/alerts", json=payload(again))) == ["asked"], "it has come up anew"


@pytest.mark.requirement("C-03")
def test_each_alert_is_answered_for_itself(world, client):
    world.add_retrainer()
    changes = [
        {"status": "resolved"},
        labels(recommender="nobody"),
        labels(alertname="Other"),
        {"labels": {"alertname": "HitRateLow"}},
        labels(),
        labels(alertname="DriftHigh") | {"fingerprint": "f2"},
    ]
    answer = client.post("/v1/alerts", json=payload(*changes))
    assert outcomes(answer) == ["resolved", "unknown", "not listed", "unknown", "asked", "held back"]
    details = [one["detail"] for one in answer.json()["alerts"]]
    assert details[1] == "unknown recommender 'nobody'"
    assert "retrain.on" in details[2]
    assert "label 'recommender'" in details[3]
    assert details[5] == "another request is pending (alert)"


HOLDS = [
    ("cooling", {"until": NOW + timedelta(hours=6)}, {}, "cooldown until 2026-01-01 06:00:00 UTC"),
    ("watching", {}, {"busy": "run r1 is under way"}, "run r1 is under way"),
    ("watching", {"firings": (Firing(NOW, "drift", "r"),)}, {}, "1 of 1 retrainings in 24 hours"),
    ("retraining", {"run": "r2"}, {}, "run r2 of the last retraining"),
    ("watching", {}, {"serving": False}, "no version serves yet"),
]


@pytest.mark.requirement("C-03")
def test_an_alert_that_is_held_back_is_told_by_what_and_goes_into_the_history_once(subtests):
    for state, status, seen, by in HOLDS:
        with subtests.test(state=state, seen=seen):
            world = World()
            client = world.client
            world.add_recommender(retrain=LISTED)
            world.add_retrainer(state, **status)
            world.seen = RetrainerObservation(**({"serving": True} | seen))
            answer = client.post("/v1/alerts", json=payload())
            assert outcomes(answer) == ["held back"]
            (found,) = answer.json()["alerts"]
            assert found["detail"].startswith(by)
            record = world.retrainers.rows["m"]
            assert record.request.key == KEY, "the retrainer writes it down"
            held_triggers = (HeldTrigger("alert", "HitRateLow", found["detail"], NOW, key=KEY),)
            world.retrainers.rows["m"] = replace(record, request=None, status=replace(record.status, held=held_triggers))
            assert outcomes(client.post("/v1/alerts", json=payload())) == ["held back"]
            assert world.retrainers.rows["m"].request is None


def test_a_recommender_whose_retrainer_is_just_being_made_holds_an_alert_back(world, client):
    assert outcomes(client.post("/v1/alerts", json=payload())) == ["held back"]


def test_a_recommender_that_the_token_does_not_see_is_unknown(world):
    world.add_retrainer()
    assert outcomes(world.holder(Role.OPERATOR, ["books"]).post("/v1/alerts", json=payload())) == ["unknown"]
    assert world.retrainers.get("m").request is None


INVALID_PAYLOADS = [
    ({"version": "3"}, "version"),
    ({"alerts": {}}, "alerts"),
    ({"alerts": [{}]}, "alerts.0.status"),
    ({"alerts": payload({"startsAt": "yesterday"})["alerts"]}, "alerts.0.startsAt"),
    ({"alerts": payload({"startsAt": "2026-01-01T00:00:00"})["alerts"]}, "alerts.0.startsAt"),
    ({"alerts": payload({"labels": {"recommender": 1}})["alerts"]}, "alerts.0.labels.recommender"),
    ({"alerts": payload({"status": "pending"})["alerts"]}, "alerts.0.status"),
]


def test_a_malformed_payload_is_refused_with_the_field(world, client, problem, subtests):
    for change, field in INVALID_PAYLOADS:
        with subtests.test(change=change):
            world.add_retrainer()
            assert field in problem(client.post("/v1/alerts", json=json.loads(PAYLOAD) | change), 422, "invalid")
            assert world.retrainers.get("m").request is None


def test_what_is_no_json_is_refused(client, problem):
    problem(client.post("/v1/alerts", content=b"{", headers={"Content-Type": "application/json"}), 400, "malformed")


# What may start a retraining


@pytest.mark.requirement("C-03")
def test_the_triggers_say_what_they_see_and_what_holds_them_back(world, client):
    on = [{"drift": {"psi": 0.2}}, {"kpi": {}}, {"new_events": 100}, {"new_data": {"every": "1d"}}, {"alert": {"names": ["A"]}}]
    world.add_recommender(
        retrain={"on": on, "mode": "warm", "schedule": "0 3 * * *", "timezone": "Europe/Berlin", "schedule_mode": "full", "max_per_day": 5}
    )
    world.seen = RetrainerObservation(serving=True, snapshot=NOW - timedelta(hours=2), events=40)
    firings = (Firing(NOW - timedelta(hours=30), "drift", "r0"), Firing(NOW - timedelta(hours=1), "kpi", "r1"))
    moved = remember(NOTHING_YET, look(genres=0.3), {"psi": 0.2}, 1)
    held_triggers = (HeldTrigger("drift", "psi 0.3", "cooldown until 2026-01-01 06:00:00 UTC", NOW),)
    world.add_retrainer("cooling", until=NOW + timedelta(hours=6), firings=firings, held=held_triggers, drift=moved)
    found = client.get("/v1/recommenders/m/triggers").json()
    rows = {one["trigger"]: one for one in found["triggers"]}
    assert list(rows) == ["kpi", "schedule", "drift", "new_events", "new_data", "alert"]
    assert (rows["drift"]["fires"], rows["drift"]["value"], rows["drift"]["threshold"], rows["drift"]["mode"]) == (True, 0.3, 0.2, "warm")
    assert (rows["new_events"]["fires"], rows["new_events"]["value"], rows["new_events"]["threshold"]) == (False, 40, 100)
    assert rows["kpi"]["mode"] == "full"
    assert {trigger["held_by"] for trigger in found["triggers"]} == {"cooldown until 2026-01-01 06:00:00 UTC"}
    assert found["schedule"]["next"] == "2026-01-01T02:00:00Z"
    assert found["schedule"]["next_local"] == "2026-01-01T03:00:00+01:00"
    assert (found["max_per_day"], [one["trigger"] for one in found["firings"]]) == (5, ["kpi"])
    assert found["retrainer"]["held"][0]["trigger"] == "drift"


def test_without_triggers_and_retrainer_there_is_little_to_say(world, client, problem):
    world.add_recommender()
    found = client.get("/v1/recommenders/m/triggers").json()
    assert found == {"retrainer": None, "triggers": [], "schedule": None, "max_per_day": None, "firings": []}
    problem(client.get("/v1/recommenders/other/triggers"), 404, "not-found")


def test_the_history_comes_in_pages_the_newest_first(world, client):
    world.add_retrainer()
    entries = [HistoryEntry(NOW, "watching", "watching", f"line {number}", "eyas") for number in range(1, 8)]
    world.retrainers.past = entries
    seen, before = [], None
    while True:
        page = client.get("/v1/recommenders/m/triggers/history", params={"limit": 3} | ({"cursor": before} if before else {})).json()
        seen += [one["reason"] for one in page["items"]]
        before = page["next"]
        entries.append(HistoryEntry(NOW, "watching", "watching", "later", "eyas"))
        if before is None:
            break
    assert seen == [f"line {number}" for number in range(7, 0, -1)]


@pytest.mark.requirement("G-09")
def test_a_trigger_of_auto_says_what_it_would_be_and_why(world, client):
    world.add_recommender(retrain={"on": [{"new_events": {"count": 3, "mode": "auto"}}]})
    world.add_retrainer()
    line = TrainingHistory((Link("warm", {"user": 130}, None), Link("full", {"user": 100}, None)))
    world.seen = RetrainerObservation(serving=True, snapshot=NOW, events=1, past=line)
    (found,) = client.get("/v1/recommenders/m/triggers").json()["triggers"]
    assert found["mode"] == "full"
    assert found["found"].endswith("(threshold 3); auto: full (user has 30% more codes than at the last full run (limit 20%))")
