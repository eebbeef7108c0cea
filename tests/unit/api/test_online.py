"""Recommendations, events, what serves, and what the world says: over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.domain.drift.alarm_decision import NOTHING_YET, remember
from shared.domain.drift.reading import DriftLook, DriftReading, ShareChange
from shared.domain.errors import Overloaded, Unavailable
from shared.domain.route import Route
from shared.ports import GatewayReport, ServerReplica
from shared.telemetry import metrics
from tests.support.api_world import NOW
from tests.support.drift_readings import AT, LIMIT, look


def test_a_recommendation_has_the_promised_form(world, client):
    found = client.post("/v1/recommend/m", json={"user": 7, "k": 2, "exclude": [30]}).json()
    assert found == {
        "request_id": "q1",
        "recommender": "m",
        "version": 1,
        "variant": "stable",
        "items": [{"item": 10, "score": 0.5}, {"item": 20, "score": None}],
        "fallback": None,
    }
    assert world.gateway.asked == [("m", 7, 2, [30], {})]


@pytest.mark.requirement("G-01")
def test_an_answer_is_explained_to_who_asks(world, client):
    found = client.post("/v1/recommend/m?explain=true", json={"user": 7}).json()
    assert found["explain"] == {
        "milliseconds": {"score": 12.5},
        "together": 3,
        "retrieved": 500,
        "filtered": 20,
        "dropped": {"seen before, or excluded": 20},
        "scored": True,
        "explored": 2,
        "rules": [[], ["boosted"]],
    }


@pytest.mark.requirement("C-01")
def test_a_trial_is_told_to_the_gateway(world, client):
    for query, trial in (("", False), ("?trial=true", True)):
        assert client.post(f"/v1/recommend/m{query}", json={"user": 7}).status_code == 200
        assert world.gateway.trials[-1] is trial


def test_slots_share_one_answer_the_first_gets_the_best(world, client, problem):
    found = client.post("/v1/recommend/m", json={"user": 7, "slots": {"hero": 1, "row": 3}}).json()
    assert found["slots"] == {"hero": [{"item": 10, "score": 0.5}], "row": [{"item": 20, "score": None}]}
    assert world.gateway.asked[0][2] == 4
    assert "not both" in problem(client.post("/v1/recommend/m", json={"user": 7, "k": 3, "slots": {"hero": 1}}), 422, "invalid")
    assert "1001 items in total" in problem(client.post("/v1/recommend/m", json={"user": 7, "slots": {"a": 1000, "b": 1}}), 422, "invalid")
    for bad in ({}, {"a": 0}, {"": 1}, {str(n): 1 for n in range(21)}):
        problem(client.post("/v1/recommend/m", json={"user": 7, "slots": bad}), 422, "invalid")


@pytest.mark.requirement("G-01")
def test_items_are_scored_and_compared_on_request(world, client, problem):
    assert client.post("/v1/score/m", json={"user": 7, "items": [10, 30]}).json() == {
        "version": 1,
        "variant": "stable",
        "items": [{"item": 10, "score": 0.5}, {"item": 30, "score": None}],
        "fallback": None,
    }
    assert client.post("/v1/similar/m", json={"item": 10, "k": 3, "exclude": [5]}).json() == {
        "version": 1,
        "items": [{"item": 20, "score": 0.5}],
    }
    assert world.gateway.asked == [("m", 10, 3, [5], {})]
    for body in ({"user": 7}, {"user": 7, "items": []}, {"user": 7, "items": [0] * 10_001}, {"user": 7, "items": ["x"]}):
        problem(client.post("/v1/score/m", json=body), 422, "invalid")


def test_what_is_not_there_just_now_can_be_tried_again(world, client, problem):
    world.gateway.fails = Unavailable("'m' serves nothing yet")
    response = client.post("/v1/recommend/m", json={"user": 7})
    problem(response, 503, "unavailable")
    assert response.headers["retry-after"] == "1"


def test_a_request_beyond_its_bounds_is_refused(client, problem, subtests):
    for body in ({}, {"user": 2**63}, {"user": 1, "k": 1001}, {"user": 1, "exclude": [0] * 10_001}, {"user": None}):
        with subtests.test(body=body):
            problem(client.post("/v1/recommend/m", json=body), 422, "invalid")


@pytest.mark.requirement("G-05")
def test_events_are_taken_in(world, client):
    response = client.post(
        "/v1/events", json={"events": [{"recommender": "m", "user": 1, "item": 2, "value": 5, "at": "2026-01-01T00:00:00Z"}]}
    )
    found = {"accepted": 1, "duplicates": 0, "conflicts": 0, "hits": 1, "refused": 0, "lines": []}
    assert (response.status_code, response.json()) == (202, found)
    assert world.gateway.recorded[0].value == 5.0


def test_a_bad_event_is_named_by_its_index(world, client, problem):
    good = {"recommender": "m", "user": 1, "item": 2}
    response = client.post("/v1/events", json={"events": [good, good | {"item": "x", "vaule": 1}, good | {"at": "2026-01-01T00:00:00"}]})
    said = problem(response, 422, "invalid")
    assert "events.1" in said
    assert "events.2.at" in said
    assert world.gateway.recorded == []


def test_numbers_that_are_none_are_refused(client, problem):
    body = b'{"events": [{"recommender": "m", "user": 1, "item": 2, "value": NaN}]}'
    problem(client.post("/v1/events", content=body, headers={"Content-Type": "application/json"}), 422, "invalid")


def test_more_than_a_thousand_events_are_refused(client, problem):
    events = [{"recommender": "m", "user": 1, "item": 2}] * 1001
    assert "events: " in problem(client.post("/v1/events", json={"events": events}), 422, "invalid")


def lines(client, *given, kind="application/x-ndjson"):
    content = b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in given)
    return client.post("/v1/events", content=content, headers={"Content-Type": kind})


GOOD = {"recommender": "m", "user": 1, "item": 2}
SHOWN = {"kind": "impression", "recommender": "m", "user": 1, "items": [3, 2], "request_id": "page-1"}


@pytest.mark.requirement("G-05")
def test_of_lines_the_good_are_taken_and_the_bad_are_named(world, client):
    response = lines(
        client, GOOD, b'{"recommender": "m", "user": 1, "it', b"", SHOWN, GOOD | {"item": 1.5}, b"\xff", GOOD | {"recommender": "z"}, []
    )
    found = response.json()
    assert (response.status_code, found["accepted"], found["refused"]) == (202, 3, 4)
    assert [one["line"] for one in found["lines"]] == [2, 5, 6, 8]
    assert found["lines"][0]["message"].startswith("not JSON: EOF")
    assert found["lines"][1]["message"] == "item: expected an id: an integer or a text"
    assert found["lines"][3]["message"] == "expected an object, got a list"
    assert [type(one).__name__ for one in world.gateway.recorded] == ["Action", "Shown", "Action"]


@pytest.mark.requirement("G-16")
def test_views_of_pages_are_events_of_their_own_and_an_item_of_a_kind_called_page_is_an_interaction(world, client):
    view = {"kind": "page", "recommender": "m", "user": 1}
    found = lines(client, view | {"page": "home"}, view | {"page": 7}, view, view | {"page": ""}, view | {"item": 3}, view | {"page": True})
    assert (found.json()["accepted"], [one["line"] for one in found.json()["lines"]]) == (3, [3, 4, 6])
    messages = ["field required", "expected at least 1 entries, got 0", "expected text, got true"]
    assert [line["message"] for line in found.json()["lines"]] == [f"page: {line}" for line in messages]
    assert [type(one).__name__ for one in world.gateway.recorded] == ["PageView", "PageView", "Action"]
    assert [one.page for one in world.gateway.recorded[:2]] == ["home", "7"]


def test_a_line_that_the_gateway_refuses_is_named_by_its_place(world):
    found = lines(world.holder("client", ["m"]), b"", GOOD, b"?", GOOD | {"recommender": "z"}).json()
    assert (found["accepted"], [one["line"] for one in found["lines"]]) == (1, [3, 4])
    assert found["lines"][1]["message"] == "recommender: unknown recommender 'z'"


def test_where_no_line_is_good_the_answer_is_the_problem(world, client, problem):
    response = lines(client, *[b"{"] * 150)
    assert problem(response, 422, "invalid").startswith("lines.1: not JSON")
    assert len(response.json()["errors"]) == 100
    assert world.gateway.recorded == []


def test_only_so_many_refused_lines_are_listed(client):
    found = lines(client, GOOD, *[b"{"] * 150).json()
    assert (found["accepted"], found["refused"], len(found["lines"])) == (1, 150, 100)


def test_no_lines_are_no_fault(client):
    assert lines(client, b"\n\n").json()["accepted"] == 0


def test_more_lines_than_are_read_are_refused(client, problem):
    assert "10000 lines" in problem(lines(client, *[b""] * 10_002), 413, "too-large")


def test_ten_megabytes_are_refused(world, client, problem):
    problem(lines(client, *[GOOD] * 200_000), 413, "too-large")
    assert world.gateway.recorded == []


def test_strings_that_no_database_keeps_are_refused_line_by_line(world, client):
    found = lines(client, GOOD, GOOD | {"id": "a\0b"}, b'{"recommender": "m", "user": 1, "item": 2, "id": "\\ud800"}').json()
    assert (found["accepted"], found["refused"]) == (1, 2)
    assert found["lines"][0]["message"].startswith("id: contains a NUL")


def test_another_type_of_body_is_refused(client, problem, subtests):
    for kind in ("text/plain", "application/xml", "application/x-ndjsonx"):
        with subtests.test(kind=kind):
            assert "application/x-ndjson" in problem(lines(client, GOOD, kind=kind), 415, "unsupported-media-type")


INVALID_BATCHES = [
    ([], "expected an object"),
    ({}, "events: "),
    ({"events": {}}, "events: expected a list"),
    ({"events": [], "event": []}, "event: unknown field"),
    ({"events": [SHOWN | {"items": []}]}, "events.0.items: expected at least 1 entries"),
    ({"events": [SHOWN | {"value": 1}]}, "unknown field 'value'"),
    ({"events": [GOOD | {"id": ""}]}, "events.0.id: "),
    ({"events": [GOOD | {"id": "x" * 129}]}, "events.0.id: "),
    ({"events": [GOOD | {"kind": "Click"}]}, "events.0.kind: "),
    ({"events": [GOOD | {"revenue": 1e9}]}, "events.0.revenue: expected at most 100000000"),
    ({"events": [7]}, "events.0: expected an object"),
]


def test_a_bad_batch_is_refused_by_the_field(world, client, problem, subtests):
    for body, said in INVALID_BATCHES:
        with subtests.test(body=body):
            assert said in problem(client.post("/v1/events", json=body), 422, "invalid")
            assert world.gateway.recorded == []


def test_serving_shows_the_server_the_routes_and_who_answered(world, client):
    world.route(1)
    found = client.get("/v1/serving").json()
    model = {"name": "eyas-m_1", "version": "1", "state": "READY", "recommender": "m"}
    assert found["server"] == {"version": "2.51.0", "models": [model], "replicas": [], "fault": None}
    assert found["routes"]["m"]["stable"] == 1
    assert found["successes"] == {"m": {"1": 7}}


def test_a_token_with_a_scope_sees_its_own_models_on_the_server_and_no_others(world):
    for scope, seen in (["m"], ["m"]), (["books"], []):
        found = world.holder("viewer", scope).get("/v1/serving").json()
        assert [one["recommender"] for one in found["server"]["models"]] == seen


def test_serving_lists_the_replicas_and_a_scope_hides_what_is_not_its_own(world, client):
    world.server.replicas = (
        ServerReplica("triton-1", "ready", (("books", 2), ("m", 1), ("m", 3)), None),
        ServerReplica("triton-2", "loading", (), "missing versions: books 2"),
    )
    one = {"name": "triton-1", "state": "ready", "versions": {"books": [2], "m": [1, 3]}, "fault": None}
    two = {"name": "triton-2", "state": "loading", "versions": {}, "fault": "missing versions: books 2"}
    assert client.get("/v1/serving").json()["server"]["replicas"] == [one, two]
    seen = world.holder("viewer", ["m"]).get("/v1/serving").json()["server"]["replicas"]
    assert "books" not in str(seen)
    assert seen[0]["versions"] == {"m": [1, 3]}
    assert (seen[1]["state"], bool(seen[1]["fault"])) == ("loading", True)


def test_serving_says_which_gateways_are_behind(world, client):
    world.route(1)
    world.routes.rows["books"] = Route(2, generation=1, since=NOW)
    world.routes.heard = [
        GatewayReport("g-1", {"m": 3, "books": 1}, NOW),
        GatewayReport("g-2", {"m": 2}, NOW),
        GatewayReport("g-3", {"m": 3}, NOW - timedelta(hours=1)),
    ]
    found = client.get("/v1/serving").json()["gateways"]
    assert [(one["name"], one["serves"], one["behind"]) for one in found] == [("g-1", 2, []), ("g-2", 1, ["books", "m"])]
    seen = world.holder("viewer", ["m"]).get("/v1/serving").json()["gateways"]
    assert [(one["name"], one["serves"], one["behind"]) for one in seen] == [("g-1", 1, []), ("g-2", 1, ["m"])]


def test_latency_is_of_the_stages_that_answers_went_through(world, client):
    for _ in range(99):
        metrics.ANSWER_STAGE_SECONDS.labels("latent", "score").observe(0.004)
    metrics.ANSWER_STAGE_SECONDS.labels("latent", "retrieve").observe(0.3)
    metrics.REQUEST_SECONDS.labels("latent", "stable").observe(9)
    found = client.get("/v1/serving/latency", params={"recommender": "latent"}).json()
    assert [(one["stage"], one["count"]) for one in found["stages"]] == [("retrieve", 1), ("score", 99)]
    assert 0.1 < found["stages"][0]["p50"] <= 0.5
    assert 0.002 < found["stages"][1]["p50"] < found["stages"][1]["p99"] <= 0.005
    assert (found["whole"]["count"], found["whole"]["p99"]) == (1, 2.5), "beyond the last bucket no more is known than its bound"
    assert world.holder("viewer", ["m"]).get("/v1/serving/latency", params={"recommender": "latent"}).json()["whole"] is None


def test_a_control_plane_without_a_gateway_says_that_it_measured_nothing(world, client):
    world.app.state.gateway = None
    assert client.get("/v1/serving/latency").json() == {"measured": False, "whole": None, "stages": []}


def test_serving_shows_the_routes_even_when_the_server_is_away(world, client):
    world.route(1)
    world.server.away = True
    found = client.get("/v1/serving").json()
    assert found["server"] == {"version": None, "models": [], "replicas": [], "fault": "Triton doesn't answer"}
    assert found["routes"]["m"]["stable"] == 1


def test_drift_comes_with_what_the_retrainer_makes_of_it(world, client):
    world.add_recommender()
    found = client.get("/v1/recommenders/m/drift").json()
    assert (found["version"], found["psi"], found["retrainer"]) == (1, {"genres": 0.31}, None)
    assert found["said"][0] == "drift of genres: psi 0.310; by chance alone once in 1,000,000,000 looks; not confirmed yet"
    assert found["said"][1:] == ["no retraining starts: the spec has no drift trigger"]
    world.add_retrainer()
    assert client.get("/v1/recommenders/m/drift").json()["retrainer"]["state"] == "watching"


RATES = {
    "answers": 100,
    "hits": 25,
    "hit_rate": 0.25,
    "conversions": 5,
    "conversion": 0.05,
    "revenue": 12.5,
    "revenue_per_answer": 0.125,
    "engagement": 0.5,
}
EARNINGS = {
    **RATES,
    "version": 2,
    "kinds": {"click": 40, "purchase": 5},
    "click_rate": [0.2, 0.1],
    "variants": {"stable": RATES},
    "slices": {"germany": RATES},
    "looked": 100,
    "coverage": 0.5,
    "novelty": 2.5,
}


@pytest.mark.requirement("C-06", "G-05")
def test_drift_says_which_feature_moved_how_since_when_and_how_sure(world, client):
    world.add_recommender(retrain={"on": [{"drift": {"scores": 0.3}}]})
    moved = DriftReading("psi", "genres", 0.4, 1e-7, LIMIT, (400, 300), (ShareChange("comedy", 0.2, 0.5), ShareChange("drama", 0.8, 0.5)))
    calm = DriftReading("nulls", "year", 0.01, 0.3, LIMIT, (400, 300))
    world.look = DriftLook(1, AT + timedelta(minutes=9), (calm, moved))
    world.add_retrainer(drift=remember(NOTHING_YET, DriftLook(1, AT, (moved,)), {"psi": 0.2}, 1))
    found = client.get("/v1/recommenders/m/drift").json()
    assert found["said"] == [
        "drift of genres: psi 0.400 (comedy from 20.0% to 50.0%, drama from 80.0% to 50.0%); by chance alone "
        "once in 10,000,000 looks; since 2026-01-01 12:00:00 UTC"
    ]
    first, second = found["readings"]
    assert (first["feature"], first["stands"], first["since"], first["threshold"]) == ("genres", True, "2026-01-01T12:00:00Z", 0.2)
    assert first["moved"][0] == {"value": "comedy", "before": 0.2, "after": 0.5}
    assert (second["feature"], second["stands"], second["since"], second["users_now"]) == ("year", False, None, 300)
    world.look = replace(world.look, version=2)
    assert not client.get("/v1/recommenders/m/drift").json()["readings"][0]["stands"], "it was another version's"


def test_too_few_likes_are_said_and_calm_too(world, client):
    world.add_recommender(retrain={"on": [{"drift": {}}]})
    world.look = look(genres=0.0)
    assert client.get("/v1/recommenders/m/drift").json()["said"] == [
        "no drift: the least likely of 1 readings is drift of genres: psi 0.000; by chance alone in 100% of all looks"
    ]
    world.look = None
    found = client.get("/v1/recommenders/m/drift").json()
    assert (found["version"], found["at"], found["psi"], found["readings"]) == (None, None, {}, [])
    assert found["said"] == ["too few positives or users for two separate windows: drift is not known yet"]


@pytest.mark.requirement("G-13")
def test_kpis_are_told_by_version(world, client):
    world.add_recommender()
    found = client.get("/v1/recommenders/m/kpis?window=30m").json()
    assert found == {"window": "30m", "versions": [EARNINGS]}


@pytest.mark.requirement("G-13")
def test_kpis_are_told_over_time(world, client):
    world.add_recommender()
    found = client.get("/v1/recommenders/m/kpis/series?window=1h&step=30m&points=3").json()
    point = RATES | {"ends": "2026-01-01T00:00:00Z"}
    assert found == {"window": "1h", "step": "30m", "versions": [{"version": 2, "points": [point]}]}


INVALID_SERIES = [
    ("window=1h&step=7m", "step: the window must be a multiple of the step"),
    ("window=5m&step=1h", "step: the window must be a multiple of the step"),
    ("window=soon", "window: "),
    ("step=0s", "step: expected a duration above 0"),
    ("points=0", "points: "),
    ("points=501", "points: "),
    ("window=30d&step=1s", "2592012 steps in all, at most 2000 are allowed"),
]


def test_a_series_without_a_bound_is_refused(world, client, problem, subtests):
    for query, said in INVALID_SERIES:
        with subtests.test(query=query):
            world.add_recommender()
            assert said in problem(client.get(f"/v1/recommenders/m/kpis/series?{query}"), 422, "invalid")


def test_a_window_that_means_nothing_is_refused(world, client, problem, subtests):
    for window in ("soon", "0s", "900000d", "99999999999999999d", ""):
        with subtests.test(window=window):
            world.add_recommender()
            assert "window: " in problem(client.get("/v1/recommenders/m/kpis", params={"window": window}), 422, "invalid")


@pytest.mark.requirement("C-03")
def test_retraining_by_hand_is_left_for_the_retrainer(world, client, problem):
    world.add_recommender()
    problem(client.post("/v1/recommenders/m:retrain"), 503, "unavailable")
    world.add_retrainer()
    assert client.post("/v1/recommenders/m:retrain", json={"reason": "new season"}).status_code == 202
    assert world.retrainers.get("m").request.verb == "retrain"


def test_a_retraining_under_way_is_not_doubled(world, client, problem):
    world.add_recommender()
    world.add_retrainer("retraining")
    assert "is retraining" in problem(client.post("/v1/recommenders/m:retrain"), 409, "conflict")


def test_a_warm_retraining_needs_a_version_to_start_from(world, client, problem):
    world.add_recommender(retrain={"mode": "warm"})
    world.add_retrainer()
    assert "start a full run" in problem(client.post("/v1/recommenders/m:retrain"), 409, "conflict")


def test_more_than_can_be_answered_is_refused_with_when_to_come_again(world, client, problem):
    world.gateway.fails = Overloaded("70 requests are already waiting")
    response = client.post("/v1/recommend/m", json={"user": 7})
    problem(response, 429, "crowded")
    assert response.headers["retry-after"] == "1"
