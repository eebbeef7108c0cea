"""Requests to the control plane are counted by kind and outcome; the objectives rest on these counters."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
from prometheus_client import REGISTRY
from starlette.requests import ClientDisconnect

from services.api.access import FRAMEWORK, table
from services.api.app import CONTROL, ROOMS
from services.api.request_metrics import _LONG, OUTCOMES, RequestMetrics, is_control
from shared.domain.errors import Unavailable

pytestmark = pytest.mark.requirement("C-06")
KINDS = ("read", "write", "long")


def counts() -> Counter[tuple[str, str]]:
    """Requests by kind and outcome; under `timed`, durations by kind."""
    labels = [{"kind": kind, "outcome": outcome} for kind in KINDS for outcome in OUTCOMES]
    requests = {(pair["kind"], pair["outcome"]): REGISTRY.get_sample_value("eyas_api_requests_total", pair) for pair in labels}
    timed = {(kind, "timed"): REGISTRY.get_sample_value("eyas_api_seconds_count", {"kind": kind}) for kind in KINDS}
    return Counter({key: int(value) for key, value in (requests | timed).items() if value})


@pytest.fixture
def counted(world):
    before = counts()
    return lambda: dict(counts() - before)


def test_every_series_is_there_before_the_first_request(world):
    """Else a rate misses an error that comes first."""
    assert world.app
    for kind in KINDS:
        for outcome in OUTCOMES:
            assert REGISTRY.get_sample_value("eyas_api_requests_total", {"kind": kind, "outcome": outcome}) is not None
        assert (REGISTRY.get_sample_value("eyas_api_seconds_count", {"kind": kind}) is None) == (kind == "long")


def test_good_and_refused_requests(world, client, counted):
    assert client.get("/v1/recommenders").status_code == 200
    assert client.get("/v1/runs/none").status_code == 404
    assert client.get("/v1/no/such/place").status_code == 404
    assert client.delete("/v1/recommenders").status_code == 405
    assert world.stranger.get("/v1/recommenders").status_code == 401
    assert world.stranger.post("/v1/recommenders", json={}).status_code == 401
    assert counted() == {("read", "ok"): 1, ("read", "timed"): 1, ("read", "refused"): 3, ("write", "refused"): 1, ("long", "refused"): 1}


def test_failed_requests(world, client, counted, monkeypatch):
    """Expected faults, and others; in a handler, and at the check of the token."""

    def away(*_, **__):
        raise Unavailable("the database doesn't answer")

    def bug(*_, **__):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(world.recommenders, "get", away)
        assert client.get("/v1/recommenders/m").status_code == 503
        patched.setattr(world.recommenders, "get", bug)
        assert client.get("/v1/recommenders/m").status_code == 500
        patched.setattr(world.tokens, "get", away)
        stranger = {"Authorization": f"Bearer eyas_{'a' * 10}_{'0' * 64}"}
        assert world.stranger.delete("/v1/recommenders/m", headers=stranger).status_code == 503
    assert counted() == {("read", "error"): 2, ("write", "error"): 1}


def test_long_requests_are_counted_without_their_duration(client, counted, spec_text):
    assert client.post("/v1/recommenders:validate", content=spec_text, headers={"Content-Type": "application/json"}).is_success
    assert client.get("/v1/events/none").status_code == 404
    assert counted() == {("long", "ok"): 1, ("long", "refused"): 1}


def test_health_and_online_requests_are_not_counted(world, client, counted):
    world.waiting = ["the process is shutting down"]
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200
    world.gateway.fails = RuntimeError("a bug")
    assert client.post("/v1/recommend/m", json={"user": 1}).status_code == 500
    assert counted() == {}


def test_every_route_of_the_control_plane_is_counted_and_no_other_is():
    paths = {name: {row.path.replace("{", "").replace("}", "") for row in table(rooms)} - set(FRAMEWORK) for name, rooms in ROOMS_BY_NAME}
    assert {path for path in paths["control"] if not is_control(path)} == set()
    assert {path for path in paths["other"] if is_control(path)} == set()
    assert len(paths["control"]) > 40 and "/v1/events" in paths["other"]


ROOMS_BY_NAME = (("control", CONTROL), ("other", [room for room in ROOMS if room not in CONTROL]))


def test_routes_of_unlimited_duration_are_long(world, client, counted):
    streams = [row.path for row in table(CONTROL) if row.path.endswith("/stream")]
    assert len(streams) == 2
    assert {path for path in _LONG if path not in {row.path for row in table(CONTROL)}} == set()
    for path in streams:
        assert client.get(path.replace("{id}", "none")).status_code == 404
    assert counted() == {("long", "refused"): 2}


def test_an_answer_that_breaks_off_is_an_error_and_one_that_nobody_awaits_is_not_counted(counted):
    async def breaks_off(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("a bug after the start")

    async def leaves(scope, receive, send): ...

    async def ask(app):
        transport = httpx.ASGITransport(RequestMetrics(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            await http.get("/v1/recommenders")

    asyncio.run(ask(breaks_off))
    with pytest.raises(AssertionError):
        asyncio.run(ask(leaves))
    assert counted() == {("read", "error"): 1}


def test_a_client_that_leaves_is_no_error(world, client, counted, monkeypatch):
    def leaves(*_, **__):
        raise ClientDisconnect

    monkeypatch.setattr(world.recommenders, "get", leaves)
    with pytest.raises(AssertionError):  # there is no answer
        client.get("/v1/recommenders/m")
    assert counted() == {}
