"""The text of a spec: bounded, and every fault of it the client's."""

from __future__ import annotations

import asyncio
import json

import pytest

from services.api.limits import BodyLimit
from shared.contracts.spec import MAX_SPEC
from tests.support.api_world import document


def test_a_spec_at_the_limit_is_read_and_one_above_it_is_too_large(client, problem):
    text = json.dumps(document()).encode()
    assert client.put("/v1/recommenders/m", content=text.ljust(MAX_SPEC)).status_code < 300
    said = problem(client.put("/v1/recommenders/m", content=text.ljust(MAX_SPEC + 1)), 413, "too-large")
    assert said == f"the spec has {MAX_SPEC + 1} bytes; at most {MAX_SPEC} are read"


def test_text_that_is_no_spec_is_the_clients_fault(client, problem, subtests):
    for text in (b"\xff", b"name: a\0b", b"model: {framework: [torch]}", b"[" * 5000, b"{[a]: 1}: 2"):
        with subtests.test(text=text):
            assert "\n" not in problem(client.post("/v1/recommenders", content=text), 422, "invalid")


def test_a_body_where_none_is_read_is_refused_and_nothing_is_done(world, client, problem, subtests):
    for content in (b'{"dry_run": true}', b"null", b"x", b"[]"):
        with subtests.test(content=content):
            said = problem(client.post("/v1/gc", content=content), 422, "invalid")
            assert said == "this takes no body; what it takes goes into the query: dry_run"
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
