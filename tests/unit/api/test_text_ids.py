"""Text ids over HTTP: in the catalogue, the feature store and recommend requests, in paths too."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from urllib.parse import quote

import pytest

from services.eventlog.sql import SqlEventLog
from shared.contracts.events import Interaction
from shared.domain.entity_ids import IdHash, IdKinds
from tests.support.api_world import NOW, VIEW

IDS = ["sku-1", "42", "a/b", "..", ".", "é?#%", "x" * 256]


@pytest.fixture
def world(world):
    world.add_recommender()
    world.route(stable=1)
    world.read(1, VIEW)
    return world


def path(id):
    return quote(id, safe="").replace(".", "%2E")


def test_items_have_the_ids_that_they_were_put_with(world, client):
    assert client.put("/v1/items/m", json={"items": [{"item": id, "attributes": {"n": n}} for n, id in enumerate(IDS)]}).status_code == 200
    listed = client.get("/v1/items/m?limit=200").json()["items"]
    assert {item["item"]: item["attributes"]["n"] for item in listed} == {id: n for n, id in enumerate(IDS)}
    for number, id in enumerate(IDS):
        assert client.get(f"/v1/items/m/{path(id)}").json()["attributes"] == {"n": number}
    assert client.delete(f"/v1/items/m/{path('a/b')}").status_code == 204
    assert client.post("/v1/items/m:delete", json={"items": ["..", "never"]}).json() == {"deleted": 1}
    assert len(client.get("/v1/items/m?limit=200").json()["items"]) == len(IDS) - 2
    assert client.get("/v1/recommenders/m").json()["ids"] == {"user": None, "item": "text"}


def test_an_id_of_the_other_kind_is_refused(world, client, problem):
    client.put("/v1/items/m", json={"items": [{"item": "42"}]})
    detail = problem(client.put("/v1/items/m", json={"items": [{"item": "a"}, {"item": 42}]}), 422, "invalid")
    assert 'items.1: item: 42 is an integer, but items of this recommender have text ids; send text, such as "42"' in detail
    problem(client.post("/v1/items/m:delete", json={"items": [42]}), 422, "invalid")
    assert client.get("/v1/items/m/42").status_code == 200
    problem(client.get("/v1/items/m/43"), 404, "not-found")


def test_a_refused_write_fixes_no_kind(world, client, problem):
    problem(client.put("/v1/items/m", json={"items": [{"item": "a"}, {"item": 1}]}), 422, "invalid")
    assert client.get("/v1/recommenders/m").json()["ids"] == {"user": None, "item": None}
    assert client.put("/v1/items/m", json={"items": [{"item": 1}]}).status_code == 200
    detail = problem(client.get("/v1/items/m/x"), 422, "invalid")
    assert detail == "item: 'x' is not an integer id of 64 bits, as this recommender has"


def test_two_items_with_one_key_are_refused_with_both_ids(world, client, problem, monkeypatch):
    client.put("/v1/items/m", json={"items": [{"item": "a"}]})
    monkeypatch.setattr(IdHash, "key", lambda self, text: world.catalogue.page("m", 1)[0].item)
    detail = problem(client.put("/v1/items/m", json={"items": [{"item": "b"}]}), 422, "invalid")
    assert detail == "items 'a' and 'b' have the same key: rename one of them; nothing of this request was written"


def test_values_of_users_have_text_keys(world, client, problem):
    rows = [{"key": id, "values": {"age": n}} for n, id in enumerate(IDS)]
    assert client.put("/v1/features/m/user", json={"rows": rows}).json() == {"accepted": len(IDS), "standing": len(IDS)}
    for number, id in enumerate(IDS):
        row = client.get(f"/v1/features/m/user/{path(id)}").json()
        assert (row["key"], row["rows"][0]["values"]["age"]) == (id, number)
    detail = problem(client.put("/v1/features/m/user", json={"rows": [{"key": 1, "values": {}}]}), 422, "invalid")
    assert detail.startswith("rows.0.key: 1 is an integer, but users of this recommender have text ids")


def test_requests_have_text_ids(world, client, problem):
    world.gateway.kinds = IdKinds("text", "text")
    hash = IdHash(b"test")
    assert client.post("/v1/recommend/m", json={"user": "ada", "exclude": ["42"]}).status_code == 200
    assert world.gateway.asked[-1][1:4] == (hash.key("ada"), 10, [hash.key("42")])
    assert "user: 7 is an integer" in problem(client.post("/v1/recommend/m", json={"user": 7}), 422, "invalid")
    assert client.post("/v1/score/m", json={"user": "ada", "items": ["a", "b"]}).json()["items"] == [
        {"item": "a", "score": None},
        {"item": "b", "score": None},
    ]


@pytest.mark.parametrize("wrong", ["", "x" * 257, "a\0", True, 1.5, None, {"a": 1}])
def test_what_is_no_id_is_refused(world, client, problem, wrong):
    problem(client.post("/v1/recommend/m", json={"user": wrong}), 422, "invalid")
    problem(client.post("/v1/events", json={"events": [{"recommender": "m", "user": 1, "item": wrong}]}), 422, "invalid")


def test_stored_events_are_exported_as_they_are_sent(world, client):
    log, sent = SqlEventLog(world.engine), []
    for number in range(5):
        ids = {"user": 7, "user_id": "ada"} if number % 2 else {"user": 7}
        event = Interaction(recommender="m", item=number, kind="click", at=NOW + timedelta(seconds=number), id=f"e{number}", **ids)
        sent.append(event)
    log.interactions([*sent, Interaction(recommender="m", user=1, item=2, at=NOW - timedelta(days=1), value=3.0)], [True] * 6, timedelta(0))
    exported, cursor = [], {}
    while True:
        page = client.get("/v1/events/m", params={"limit": 2, **cursor}).json()
        exported += page["items"]
        if "next" not in page:
            break
        cursor = {"cursor": page["next"]}
    assert [event["id"] for event in exported] == ["exported-6", *(f"e{number}" for number in range(5))]
    assert exported[0] == {"id": "exported-6", "recommender": "m", "user": 1, "item": 2, "value": 3.0, "at": "2025-12-31T00:00:00Z"}
    assert [event["user"] for event in exported[1:]] == [7, "ada", 7, "ada", 7]
    assert client.post("/v1/events", json={"events": exported}).json()["accepted"] == 6
    cursor = client.get("/v1/events/m", params={"limit": 2}).json()["next"]
    whole = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    for place in ("x", "1", "1.x", f"{2**63}.1", f"1.{2**70}", 7):
        forged = base64.urlsafe_b64encode(json.dumps(whole | {"after": place}).encode()).decode().rstrip("=")
        assert client.get("/v1/events/m", params={"cursor": forged}).status_code == 400, place


def test_a_pinned_id_of_the_other_kind_is_refused_at_apply(world, client, problem):
    world.recommenders.fix_ids("m", IdKinds("text", "text"))
    spec = client.get("/v1/recommenders/m").json()["spec"]
    spec["serve"]["order"] = {"rules": [{"pin": 42}]}
    for route in ("/v1/recommenders", "/v1/recommenders:validate", "/v1/recommenders:plan"):
        assert "serve.order: pin: 42 is an integer" in problem(client.post(route, json=spec), 422, "invalid")
    spec["serve"]["order"] = {"rules": [{"pin": {"item": "42"}}]}
    assert client.post("/v1/recommenders:validate", json=spec).status_code == 200
