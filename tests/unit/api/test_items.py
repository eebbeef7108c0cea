"""The catalogue over HTTP: thousands of items a request, all or none, and every fault with its line."""

from __future__ import annotations

import json

import pytest

from services.api.limits import MAX_BODY
from shared.domain.catalogue import MOST_AT_ONCE

LINES = {"Content-Type": "application/x-ndjson"}
GOOD = {"item": 1, "attributes": {"age": 12, "genres": ["a", "b"], "price": 2.5, "adult": False, "none": []}, "available": False}


@pytest.fixture
def world(world):
    world.add_recommender()
    return world


def lines(*items):
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in items)


def keys(client, path="/v1/items/m?limit=200"):
    return [one["item"] for one in client.get(path).json()["items"]]


@pytest.mark.requirement("C-01")
@pytest.mark.requirement("G-02")
def test_items_are_put_as_json_or_by_line_and_read_back(client):
    response = client.put("/v1/items/m", json={"items": [GOOD, {"item": -2}]})
    assert (response.status_code, response.json()) == (200, {"accepted": 2, "changed": 2})
    response = client.put("/v1/items/m", content=lines(GOOD, "", {"item": 3}) + "\r\n", headers=LINES)
    assert (response.status_code, response.json()) == (200, {"accepted": 2, "changed": 1})
    assert keys(client) == [-2, 1, 3]
    found = client.get("/v1/items/m/1").json()
    assert {name: found[name] for name in GOOD} == GOOD
    assert type(found["attributes"]["age"]) is int
    assert found["revision"] == 1


def test_a_put_replaces_and_a_post_changes_what_it_names(client):
    client.put("/v1/items/m", json={"items": [GOOD]})
    client.post("/v1/items/m", json={"items": [{"item": 1, "attributes": {"age": None, "region": "de"}}]})
    found = client.get("/v1/items/m/1").json()
    assert (found["attributes"], found["available"]) == (
        {"genres": ["a", "b"], "price": 2.5, "adult": False, "none": [], "region": "de"},
        False,
    )
    client.put("/v1/items/m", json={"items": [{"item": 1, "attributes": {"age": 3}}]})
    found = client.get("/v1/items/m/1").json()
    assert (found["attributes"], found["available"]) == ({"age": 3}, True)


def test_pages_go_on_after_negative_keys_too(client):
    client.put("/v1/items/m", json={"items": [{"item": item} for item in range(-3, 4)]})
    found, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/v1/items/m?limit=2{cursor}").json()
        found += [one["item"] for one in page["items"]]
        cursor = f"&cursor={page['next']}" if page["next"] else None
    assert found == list(range(-3, 4))


def test_a_cursor_of_another_list_is_refused(client, problem):
    client.put("/v1/items/m", json={"items": [{"item": item} for item in range(3)]})
    cursor = client.get("/v1/items/m?limit=1").json()["next"]
    for wrong in (f"/v1/runs?cursor={cursor}", "/v1/items/m?cursor=nonsense"):
        problem(client.get(wrong), 400, "malformed")


INVALID_LINES = [
    (lines(GOOD, "{", GOOD), 400, "line 2 is not JSON"),
    (lines(GOOD, '{"item": NaN}'), 400, "line 2 is not JSON (NaN is not a JSON number)"),
    (b'{"item": 1}\n\xff\n', 400, "line 2 is not UTF-8 text"),
    ("[" * 100_000, 400, "line 1 is not JSON"),
    (lines(GOOD, [], {"item": "x"}), 422, "line 2: expected an object such as"),
    (lines(GOOD, [], {"item": 1.5}), 422, "line 3: item: expected an id"),
    (lines({"item": 2**63}), 422, "line 1: item"),
    (lines({"item": True}), 422, "line 1: item"),
    (lines({"item": 1, "price": 3}), 422, "line 1: unknown field 'price'; known: item, attributes, available"),
    (lines({"item": 1, "available": "yes"}), 422, "line 1: available: expected true or false"),
    (lines({"item": 1, "attributes": {"a": [1, "b"]}}), 422, "line 1: a: a list must hold only texts or only numbers"),
    (lines({"item": 1, "attributes": {"a": "\0"}}), 422, "line 1: attributes.a: contains a NUL character"),
]


def test_one_bad_line_is_named_and_nothing_of_the_request_is_written(world, client, problem, subtests):
    for verb in ("PUT", "POST"):
        for body, status, said in INVALID_LINES:
            with subtests.test(verb=verb, said=said):
                detail = problem(
                    client.request(verb, "/v1/items/m", content=body, headers=LINES), status, "malformed" if status == 400 else "invalid"
                )
                assert said in detail
                assert "nothing of this request was written" in detail
                assert world.catalogue.heads() == {}


INVALID_BODIES = [
    (b"{", 400, "the body is not JSON"),
    (b'{"items": 3}', 422, "expected an object with a list of items"),
    (b"[]", 422, "expected an object with a list of items"),
    (b'{"items": [], "whole": true}', 422, "expected an object with a list of items"),
    (b'{"items": [{"item": 1}, {"itm": 2}]}', 422, "items.1: unknown field 'itm'"),
]


def test_a_bad_json_body_is_refused_with_its_place(world, client, problem, subtests):
    for body, status, said in INVALID_BODIES:
        with subtests.test(body=body):
            response = client.put("/v1/items/m", content=body, headers={"Content-Type": "application/json"})
            assert said in problem(response, status, "malformed" if status == 400 else "invalid")
            assert world.catalogue.heads() == {}


def test_thousands_of_items_in_one_request_and_no_more_than_its_bounds(client, problem):
    some = lines(*({"item": n, "attributes": {"age": n % 18}} for n in range(5000)))
    assert client.put("/v1/items/m", content=some, headers=LINES).json() == {"accepted": 5000, "changed": 5000}
    many = lines(*({"item": n} for n in range(MOST_AT_ONCE + 1)))
    assert f"more than {MOST_AT_ONCE} items" in problem(client.put("/v1/items/m", content=many, headers=LINES), 422, "invalid")
    problem(client.put("/v1/items/m", content=b"x" * (MAX_BODY + 1), headers=LINES), 413, "too-large")


def test_another_type_of_body_is_refused(client, problem):
    for kind in ("text/csv", "application/yaml", ""):
        response = client.put("/v1/items/m", content=b"1", headers={"Content-Type": kind})
        assert "application/x-ndjson" in problem(response, 415, "unsupported-media-type")


def test_declared_attributes_are_taken_as_declared(world, client, problem):
    world.add_recommender(serve={"attributes": {"age": "number"}})
    assert client.put("/v1/items/m", json={"items": [{"item": 1, "attributes": {"age": 3}}]}).status_code == 200
    wrong = client.put("/v1/items/m", json={"items": [{"item": 1, "attributes": {"age": "3"}}]})
    assert "items.0: age: expected a number, as serve.attributes says" in problem(wrong, 422, "invalid")
    wrong = client.put("/v1/items/m", json={"items": [{"item": 1, "attributes": {"ag": 3}}]})
    assert "unknown attribute 'ag'; declared by serve.attributes: age" in problem(wrong, 422, "invalid")


def test_items_are_deleted_one_by_one_or_many_at_once(client, problem):
    client.put("/v1/items/m", json={"items": [{"item": item} for item in range(5)]})
    assert client.delete("/v1/items/m/3").status_code == 204
    problem(client.delete("/v1/items/m/3"), 404, "not-found")
    problem(client.get("/v1/items/m/3"), 404, "not-found")
    assert client.post("/v1/items/m:delete", json={"items": [0, 3, 99]}).json() == {"deleted": 1}
    assert keys(client) == [1, 2, 4]


def test_a_recommender_that_nobody_made_has_no_items(client, problem):
    for verb, path, body in (
        ("PUT", "/v1/items/x", {"items": []}),
        ("POST", "/v1/items/x", {"items": []}),
        ("POST", "/v1/items/x:delete", {"items": []}),
        ("GET", "/v1/items/x", None),
        ("GET", "/v1/items/x/1", None),
        ("DELETE", "/v1/items/x/1", None),
    ):
        assert "no recommender is called 'x'" in problem(client.request(verb, path, **({"json": body} if body else {})), 404, "not-found")


def test_a_write_is_audited_without_its_items(world, client):
    client.put("/v1/items/m", content=lines(GOOD), headers=LINES)
    (entry,) = world.audit.list()
    assert (entry.action, entry.target, entry.recommender, entry.status) == ("PUT /v1/items/{name}", "/v1/items/m", "m", 200)
    assert "genres" not in repr(entry)


@pytest.mark.requirement("G-02")
def test_a_recommendation_takes_what_is_known_of_the_user(world, client, problem):
    context = {"age": 12, "region": "de", "likes": ["a"], "gone": None}
    assert client.post("/v1/recommend/m", json={"user": 7, "context": context}).status_code == 200
    assert world.gateway.asked[0][-1] == {"age": 12, "region": "de", "likes": ("a",)}
    for wrong in ({"a b": 1}, {"age": {}}, {"age": 2**60}, {f"a{n}": 1 for n in range(51)}, {"text": "x" * 501}, []):
        assert "context: " in problem(client.post("/v1/recommend/m", json={"user": 7, "context": wrong}), 422, "invalid")
