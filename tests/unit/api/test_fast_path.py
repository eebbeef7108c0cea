"""The short way of a request for recommendations answers as the long way does, and takes good requests alone."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import pytest

from services.api import fast_path
from shared.domain.errors import NotFound, Overloaded, Unavailable
from shared.domain.ids import REQUEST_ID

JSON = {"Content-Type": "application/json"}


@contextmanager
def long_way():
    """No request takes the short way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "_target_of", lambda scope: None)
        yield


@pytest.fixture
def short_ways(monkeypatch):
    """What was answered the short way."""
    taken = []
    good = fast_path._good

    def spy(body):
        found = good(body)
        taken.append(found)
        return found

    monkeypatch.setattr(fast_path, "_good", spy)
    return taken


def asked(client, body, path="/v1/recommend/m", headers=JSON):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post(path, content=content, headers=headers)
    assert re.fullmatch(REQUEST_ID, response.headers.pop("x-request-id"))
    return response.status_code, response.headers, response.content


GOOD = [
    {"user": 7},
    {"user": 7, "k": 2, "exclude": [30]},
    {"user": 7, "context": {"age": 3, "regions": ["de", "fr"], "none": None}},
    {"user": -(2**63), "k": "5"},
    b' {"user": 1, "user": 7}\n',
]
BAD = [
    {},
    [],
    {"user": 2**63},
    {"user": 1.5},
    {"user": 7, "k": 0},
    {"user": 7, "k": 1001},
    {"user": 7, "kk": 1},
    {"user": 7, "exclude": [0] * 10_001},
    {"user": 7, "context": {"a": {"b": 1}}},
    {"user": 7, "context": {"a": "\0"}},
    b'{"user": 7, "context": {"a": NaN}}',
    b'{"user": ',
    b"\xff",
    b"",
    b"[" * 100_000,
    b'{"user": ' + b"9" * 5000 + b"}",
]


@pytest.mark.requirement("G-01")
def test_a_good_request_is_answered_the_same_on_both_ways(world, client, short_ways, subtests):
    for body in GOOD:
        with subtests.test(body=body):
            short_ways.clear()
            world.gateway.asked.clear()
            short = asked(client, body)
            assert len(short_ways) == 1
            assert short_ways[0] is not None
            with long_way():
                long = asked(client, body)
            assert len(short_ways) == 1
            assert short == long
            assert short[0] == 200
            assert len(world.gateway.asked) == 2
            assert world.gateway.asked[0] == world.gateway.asked[1]


def test_a_bad_request_is_refused_the_same_on_both_ways(world, client, short_ways, subtests):
    for body in BAD:
        with subtests.test(body=body):
            short_ways.clear()
            short = asked(client, body)
            assert short_ways in ([None], [])
            with long_way():
                assert asked(client, body) == short
            assert 400 <= short[0] < 500
            assert world.gateway.asked == []


def test_a_refusal_of_the_gateway_is_told_the_same_on_both_ways(world, client, subtests):
    for fault in (Unavailable("'m' serves nothing yet"), NotFound("no recommender is called 'm'"), Overloaded("busy")):
        with subtests.test(fault=fault):
            world.gateway.fails = fault
            short = asked(client, {"user": 7})
            with long_way():
                assert asked(client, {"user": 7}) == short
            assert short[0] == fault.status


OTHER_REQUESTS = [
    ("/v1/recommend/m?explain=1", JSON),
    ("/v1/recommend/M", JSON),
    ("/v1/recommend/m/", JSON),
    ("/v1/recommend/%6D", {"Content-Type": "text/plain"}),
    ("/v1/recommend/m", {"Content-Type": "application/json; charset=utf-8"}),
    ("/v1/recommend/m", {}),
    ("/v1/recommender/m", JSON),
]


def test_what_is_not_plain_goes_the_long_way(client, short_ways, subtests):
    for path, headers in OTHER_REQUESTS:
        with subtests.test(path=path):
            asked(client, {"user": 7}, path, headers)
            assert short_ways == []


def test_a_body_without_a_length_goes_the_long_way(world, client, short_ways):
    async def parts():
        for part in (b'{"user"', b": 7}"):
            yield part

    response = client.post("/v1/recommend/m", content=parts(), headers=JSON)
    assert (response.status_code, short_ways) == (200, [])


def test_who_may_not_goes_the_long_way_and_is_refused_there(world, problem, short_ways):
    problem(world.holder("viewer").post("/v1/recommend/m", json={"user": 7}), 403, "forbidden")
    problem(world.holder("client", ["z"]).post("/v1/recommend/m", json={"user": 7}), 404, "not-found")
    problem(world.stranger.post("/v1/recommend/m", json={"user": 7}), 401, "unauthenticated")
    assert short_ways == []
