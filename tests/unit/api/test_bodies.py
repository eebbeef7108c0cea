"""Bodies: bounded in size and in what they cost to read, and every fault of them the client's."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest

from services.api import bodies, eventbodies, item_bodies, json_bodies
from services.api.json_bodies import MAX_NAMES, SHORT
from services.api.limits import MAX_BODY, BodyLimit
from services.api.rate_limits import ALERTS, BULK, KEYS, ONLINE, WRITE
from shared.contracts.spec import MAX_SPEC
from tests.support.api_world import document


def test_a_spec_at_the_limit_is_read_and_one_above_it_is_too_large(client, problem):
    text = json.dumps(document()).encode()
    assert client.put("/v1/recommenders/m", content=text.ljust(MAX_SPEC)).status_code < 300
    said = problem(client.put("/v1/recommenders/m", content=text.ljust(MAX_SPEC + 1)), 413, "too-large")
    assert said == f"the body has {MAX_SPEC + 1} bytes; this route accepts at most {MAX_SPEC}"


def test_text_that_is_no_spec_is_the_clients_fault(client, problem, subtests):
    for text in (b"\xff", b"name: a\0b", b"model: {framework: [torch]}", b"[" * 5000, b"{[a]: 1}: 2"):
        with subtests.test(text=text):
            assert "\n" not in problem(client.post("/v1/recommenders", content=text), 422, "invalid")


def test_a_body_where_none_is_read_is_refused_and_nothing_is_done(world, client, problem, subtests):
    for content in (b'{"dry_run": true}', b"null", b"x", b"[]"):
        with subtests.test(content=content):
            said = problem(client.post("/v1/gc", content=content), 422, "invalid")
            assert said == "this route takes no body; use query parameters: dry_run"
            assert world.swept == []
            assert "takes no body" in problem(client.request("GET", "/v1/schema", content=content), 422, "invalid")


@pytest.mark.parametrize("content", [b"", b"{}", b" \n"])
def test_an_empty_body_is_none(world, client, content):
    assert client.post("/v1/gc?dry_run=true", content=content).status_code == 200
    assert world.swept == [True]


def test_a_body_whose_message_does_not_say_that_more_comes_is_whole():
    """ASGI: `more_body` is false where a server leaves it out. A second receive would wait for the client."""
    messages = [{"type": "http.request", "body": b"{}"}]
    seen = []

    async def receive():
        return messages.pop(0)

    async def app(scope, receive, send):
        seen.append(await receive())

    asyncio.run(BodyLimit(app)({"type": "http", "headers": []}, receive, None))
    assert seen == [{"type": "http.request", "body": b"{}"}]


JSON = {"Content-Type": "application/json"}


async def in_pieces(body, size):
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.requirement("U-13")
@pytest.mark.parametrize("path", ["/v1/recommend/m", "/v1/recommend/m?trial=true", "/v1/similar/m"])
def test_a_large_body_of_a_recommendation_is_refused_announced_or_not(world, client, problem, path):
    body = json.dumps({"user": 7, "context": {f"n{number}": 1 for number in range(75_000)}}).encode()
    assert 900_000 < len(body) < MAX_BODY
    for content in (body, in_pieces(body, 4096)):
        said = problem(client.post(path, content=content, headers=JSON), 413, "too-large")
        assert said == f"the body has {len(body)} bytes; this route accepts at most {64 * 1024}"
    assert world.gateway.asked == []


@pytest.mark.requirement("U-13")
def test_a_body_at_the_limit_of_recommendations_is_answered(client):
    body = b'{"user": 7}'.ljust(ONLINE.bytes)
    assert client.post("/v1/recommend/m", content=body, headers=JSON).status_code == 200
    assert client.post("/v1/recommend/m", content=body + b" ", headers=JSON).status_code == 413


@pytest.mark.requirement("U-13")
def test_ten_thousand_items_of_any_length_can_be_scored(client):
    body = {"user": -(2**63), "items": [2**63 - 1] * 10_000}
    assert client.post("/v1/score/m", json=body).status_code == 200


@pytest.mark.requirement("U-13")
def test_a_body_of_many_values_is_refused_before_it_is_read(client, problem, monkeypatch, subtests):
    monkeypatch.setattr(json_bodies, "json", SimpleNamespace(loads=lambda *_, **__: pytest.fail("it was read")))
    values = {"/v1/recommend/m": ONLINE, "/v1/score/m": KEYS, "/v1/tokens": WRITE, "/v1/alerts": ALERTS, "/v1/events": BULK}
    for path, work in values.items():
        with subtests.test(path=path):
            body = b'{"a": [' + b",".join([b"[]"] * (work.values // 2)) + b"]}"
            assert len(body) < work.bytes
            assert f"more than {work.values} values" in problem(client.post(path, content=body, headers=JSON), 413, "too-large")


@pytest.mark.requirement("U-13")
def test_lines_of_many_values_are_refused_before_they_are_read(client, problem, subtests):
    lines = b"[" + b",".join([b"[]"] * BULK.values) + b"]\n"
    for method, path in (("POST", "/v1/events"), ("PUT", "/v1/items/m")):
        with subtests.test(path=path):
            client.put("/v1/recommenders/m", content=json.dumps(document()))
            response = client.request(method, path, content=lines, headers={"Content-Type": "application/x-ndjson"})
            assert "more than 150000 values" in problem(response, 413, "too-large")


@pytest.mark.requirement("U-13")
def test_the_names_of_an_object_are_bounded(client, problem, subtests):
    names = {f"n{number}": 1 for number in range(MAX_NAMES + 1)}
    for path, body in {
        "/v1/recommend/m": {"user": 7, "context": names},
        "/v1/similar/m": {"item": 7, "context": names},
        "/v1/tokens": names,
        "/v1/events": {"events": [names]},
    }.items():
        with subtests.test(path=path):
            said = problem(client.post(path, json=body), 422, "invalid")
            assert said == f"an object of the body has {MAX_NAMES + 1} names; the limit is {MAX_NAMES}"


@pytest.mark.requirement("U-13")
def test_of_a_thousand_wrong_values_a_hundred_faults_are_told(client, subtests):
    wrong = {
        "/v1/events": {"events": [{"kind": "impression", "items": ["x"] * 20}] * 1000},
        "/v1/recommend/m": {"user": 7, "exclude": [""] * 10_000},
        "/v1/score/m": {"user": 7, "items": [""] * 10_000},
        "/v1/alerts": {"version": "4", "alerts": [{}] * 1000},
        "/v1/tokens": {"name": "n", "role": "viewer", "recommenders": [1] * 1000},
    }
    for path, body in wrong.items():
        with subtests.test(path=path):
            response = client.post(path, json=body)
            assert response.status_code == 422
            assert 1 <= len(response.json()["errors"]) <= 100


@pytest.mark.requirement("U-13")
def test_what_is_not_short_is_read_by_another_thread_than_the_event_loops(world, client, monkeypatch, subtests):
    """The test's client runs the event loop in the main thread."""
    readers = []

    def watched(module, name):
        read = getattr(module, name)

        def reading(*given):
            readers.append(threading.current_thread())
            return read(*given)

        monkeypatch.setattr(module, name, reading)

    for module, name in (
        (json_bodies, "parse"),
        (json_bodies, "refuse_unkeepable"),
        (bodies, "parse_spec"),
        (eventbodies, "_of_batch"),
        (eventbodies, "_of_lines"),
        (item_bodies, "_read"),
    ):
        watched(module, name)
    client.put("/v1/recommenders/m", content=json.dumps(document()))
    padding = " " * SHORT
    escaped = b'{"version": "4", "alerts": [], "x": "\\ud83d\\ude00"}'
    for method, path, content, kind in (
        ("POST", "/v1/recommenders:validate", json.dumps(document()).encode(), "application/yaml"),
        ("POST", "/v1/recommenders", json.dumps(document()).encode(), "application/json"),
        ("POST", "/v1/alerts", (json.dumps({"version": "4", "alerts": []}) + padding).encode(), "application/json"),
        ("POST", "/v1/alerts", escaped, "application/json"),
        ("POST", "/v1/recommend/m", b'{"user": 7, "context": {"a": "\\ud83d\\ude00"}}', "application/json"),
        ("POST", "/v1/events", b'{"events": []}', "application/json"),
        ("POST", "/v1/events", b"\n", "application/x-ndjson"),
        ("PUT", "/v1/items/m", b'{"items": []}', "application/json"),
    ):
        with subtests.test(path=path, content=content):
            readers.clear()
            assert client.request(method, path, content=content, headers={"Content-Type": kind}).status_code < 300
            assert readers
            assert threading.main_thread() not in readers
    readers.clear()
    assert client.post("/v1/recommenders/m/runs", json={"reason": "a short body"}).status_code == 202
    assert readers == [threading.main_thread()]


@pytest.mark.requirement("U-13")
def test_a_body_in_many_pieces_is_handed_on_in_one():
    """Whoever puts pieces together one by one copies the body as often as there are pieces."""
    messages = [{"type": "http.request", "body": b"x", "more_body": True}] * 1000 + [{"type": "http.request", "body": b"y"}]
    messages.reverse()
    seen = []

    async def receive():
        return messages.pop()

    async def app(scope, receive, send):
        seen.append(await receive())

    asyncio.run(BodyLimit(app)({"type": "http", "headers": []}, receive, None))
    assert seen == [{"type": "http.request", "body": b"x" * 1000 + b"y"}]


def test_a_client_that_goes_away_within_its_body_is_told_of():
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"x", "more_body": True}]
    seen = []

    async def receive():
        return messages.pop()

    async def app(scope, receive, send):
        seen.append(await receive())

    asyncio.run(BodyLimit(app)({"type": "http", "headers": []}, receive, None))
    assert seen == [{"type": "http.disconnect"}]
