"""What serves: replicas, gateways, routes and times, and what is said where something isn't known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.domain.route import Route
from shared.ports import GatewayReport, ServerReplica
from shared.telemetry import metrics
from tests.support.api_world import NOW

pytestmark = pytest.mark.requirement("C-01", "C-09")

EVIL = "<script>window.pwned=1</script>"


@pytest.fixture
def world(world):
    world.add_recommender()
    return world


def test_before_anything_serves_it_says_what_to_do(visitor):
    text = visitor.get("/serving").text
    assert "Nothing serves yet" in text
    assert "eyas apply spec.yaml" in text
    assert "No report from a gateway" in text


def test_replicas_and_gateways_stand_with_their_states(world, visitor, monkeypatch):
    monkeypatch.setattr("services.console.pages.serving.now", lambda: NOW)
    world.route(1, candidate=2, weight=0.05, salt="r1-rollout")
    world.server.replicas = (
        ServerReplica("triton-1", "ready", (("m", 1),), None),
        ServerReplica("triton-2", "loading", (), "missing versions: m 2"),
    )
    world.routes.heard = [
        GatewayReport("gate-a", {"m": 3}, NOW),
        GatewayReport("gate-b", {"m": 2}, NOW),
        GatewayReport("gate-c", {"m": 3}, NOW - timedelta(minutes=1)),
    ]
    text = visitor.get("/serving").text
    for said in (
        "1 of 2 replicas ready",
        "missing versions: m 2",
        "up to date",
        "silent",
        "behind",
        "version 2, 5 % of users",
        'href="/rollouts/r1-rollout"',
    ):
        assert said in " ".join(text.split())


def test_a_model_server_that_does_not_answer_is_told_first(world, visitor):
    world.route(1)
    world.server.away = True
    text = visitor.get("/serving").text
    assert "The model server does not answer: Triton doesn&#39;t answer" in text
    assert "version 1" in text


def test_times_are_shown_with_where_they_come_from(world, visitor):
    world.routes.rows["unasked"] = Route(1, generation=1, since=NOW)
    assert "No answers yet for unasked" in visitor.get("/serving?recommender=unasked").text
    metrics.ANSWER_STAGE_SECONDS.labels("timed", "score").observe(0.004)
    metrics.REQUEST_SECONDS.labels("timed", "stable").observe(0.006)
    world.routes.rows["timed"] = Route(1, generation=1, since=NOW)
    text = visitor.get("/serving?recommender=timed").text
    assert "Latency by stage of timed" in text
    assert "score: 99th percentile" in text
    assert "Measured by the gateway of this process" in text


def test_without_a_gateway_here_the_times_are_said_to_be_elsewhere(world, visitor):
    world.app.state.gateway = None
    assert "each gateway is a separate process and measures its own answers" in " ".join(visitor.get("/serving").text.split())


def test_many_routes_come_in_pages(world, visitor):
    for number in range(120):
        world.routes.rows[f"r{number:03d}"] = Route(1, generation=1, since=datetime(2026, 1, 1, tzinfo=UTC))
    first = visitor.get("/serving").text
    assert "r049" in first and "r050" not in first
    assert 'href="/serving?recommender=&amp;after=r049"' in first
    assert "r099" in visitor.get("/serving?recommender=&after=r049").text
    only = visitor.get("/serving?recommender=r11").text
    assert "r110" in only and "r100" not in only


def test_a_scope_hides_the_others(world, site):
    from tests.unit.console.conftest import Visitor

    world.route(1)
    world.routes.rows["books"] = Route(1, generation=1, since=NOW)
    token = world.holder("viewer", ["m"])._headers["Authorization"].removeprefix("Bearer ")
    text = Visitor(site, token).get("/serving").text
    assert 'href="/recommenders/m"' in text and "books" not in text


def test_what_others_named_stays_text(world, visitor):
    world.route(1, salt=EVIL)
    world.routes.rows["m"] = Route(1, 2, 0.5, EVIL, generation=1, since=NOW)
    world.server.replicas = (ServerReplica(EVIL, "ready", (("m", 1),), EVIL),)
    world.routes.heard = [GatewayReport(EVIL, {}, NOW)]
    assert EVIL not in visitor.get("/serving?recommender=" + EVIL).text
    assert EVIL not in visitor.get("/serving").text
