"""Versions by number, alias and tag; tags; and what served when."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from services.api.examples import EXAMPLES
from shared.contracts.stage import File
from shared.domain.route import Route
from shared.ports import RouteEntry
from tests.support.api_world import NOW

pytestmark = pytest.mark.requirement("G-11")


@pytest.fixture
def versions(world):
    """Four versions: 2 serves, 1 served before, 3 is tried, 4 waits."""
    world.add_recommender()
    for number in (1, 2, 3, 4):
        world.add_version(number, f"r{number}")
    world.route(2, candidate=3, weight=0.1)
    world.routes.before["m"] = 1
    return world


def test_a_version_is_found_by_number_alias_and_tag(versions, client):
    client.put("/v1/recommenders/m/versions/4/tags/champion")
    words = {"1": 1, "serving": 2, "previous": 1, "candidate": 3, "champion": 4}
    assert {word: client.get(f"/v1/recommenders/m/versions/{word}").json()["version"] for word in words} == words


def test_the_list_says_what_each_version_is_called(versions, client):
    client.put("/v1/recommenders/m/versions/4/tags/champion")
    client.put("/v1/recommenders/m/versions/2/tags/small")
    versions.registry.gone[1] = NOW
    found = client.get("/v1/recommenders/m/versions").json()["items"]
    assert [(one["version"], one["aliases"], one["tags"], one["collected_at"]) for one in found] == [
        (4, [], ["champion"], None),
        (3, ["candidate"], [], None),
        (2, ["serving"], ["small"], None),
        (1, ["previous"], [], "2026-01-01T00:00:00Z"),
    ]


def test_a_card_is_read_by_whatever_the_version_is_called(world, client, problem):
    world.add_recommender()
    card = EXAMPLES["get_card"]["answer"]
    world.blobs = {"a" * 64: json.dumps(card).encode()}
    world.add_version(1, "r1", {"model_card.json": File(sha256="a" * 64, size=9)})
    world.add_version(2, "r2")
    world.route(1)
    found = client.get("/v1/recommenders/m/versions/serving/card").json()
    assert (found["metrics"], found["gates"][0]["reason"]) == (card["metrics"], "parity is 1e-07 <= 0.0001")
    assert "version 2 of 'm' has no card" in problem(client.get("/v1/recommenders/m/versions/2/card"), 404, "not-found")
    world.registry.gone[1] = NOW
    assert "its card is deleted with its files" in problem(client.get("/v1/recommenders/m/versions/1/card"), 404, "not-found")


def test_an_alias_that_names_nothing_now_is_not_found(world, client, problem):
    world.add_recommender()
    world.add_version(1)
    for word in ("serving", "previous", "candidate"):
        assert f"no {word} version now" in problem(client.get(f"/v1/recommenders/m/versions/{word}"), 404, "not-found")


def test_what_names_no_version_is_not_found(versions, client, problem, subtests):
    for word in ("9", "0", "unknown", "-1", "1.0", "99999999999999999999", "%00", "Serving"):
        with subtests.test(word=word):
            problem(client.get(f"/v1/recommenders/m/versions/{word}"), 404, "not-found")


def test_a_tag_moves_and_is_taken_away(versions, client, problem):
    assert client.put("/v1/recommenders/m/versions/1/tags/champion").json()["tags"] == ["champion"]
    assert client.put("/v1/recommenders/m/versions/2/tags/champion").json()["tags"] == ["champion"]
    assert client.get("/v1/recommenders/m/versions/1").json()["tags"] == []
    problem(client.delete("/v1/recommenders/m/versions/1/tags/champion"), 404, "not-found")
    assert client.delete("/v1/recommenders/m/versions/2/tags/champion").json()["tags"] == []


INVALID_TAGS = ["serving", "previous", "candidate", "latest", "7", "v3", "v1.2", "version-3", "Champion", "a b", "a" * 64, "ä", "-a"]


def test_a_tag_that_could_be_taken_for_something_else_is_refused(versions, client, problem, subtests):
    for tag in INVALID_TAGS:
        with subtests.test(tag=tag):
            assert "tag" in problem(client.put(f"/v1/recommenders/m/versions/1/tags/{tag}"), 422, "invalid")
            assert versions.registry.given == {}


def test_tags_are_put_on_numbers_alone(versions, client, problem):
    assert "number" in problem(client.put("/v1/recommenders/m/versions/serving/tags/champion"), 422, "invalid")
    problem(client.put("/v1/recommenders/m/versions/9/tags/champion"), 404, "not-found")
    problem(client.put("/v1/recommenders/x/versions/1/tags/champion"), 404, "not-found")


@pytest.fixture
def past(world):
    world.add_recommender()
    since = [NOW + timedelta(hours=n) for n in range(3)]
    routes = [
        Route(1, generation=1, since=since[0]),
        Route(1, 2, 0.2, "o2", 0, generation=2, since=since[1]),
        Route(2, generation=3, since=since[2]),
    ]
    until = [*since[1:], None]
    world.routes.past = [RouteEntry(route, end, "ada", f"reason {n}") for n, (route, end) in enumerate(zip(routes, until, strict=True))]
    return world


def test_the_history_says_what_served_when_and_by_whom(past, client):
    first = client.get("/v1/recommenders/m/history?limit=2").json()
    rows = [(one["generation"], one["stable"], one["candidate"], one["weight"], one["until"], one["actor"]) for one in first["items"]]
    assert rows == [(3, 2, None, 0.0, None, "ada"), (2, 1, 2, 0.2, "2026-01-01T02:00:00Z", "ada")]
    assert first["items"][0]["reason"] == "reason 2"
    rest = client.get(f"/v1/recommenders/m/history?limit=2&cursor={first['next']}").json()
    assert ([one["generation"] for one in rest["items"]], rest["next"]) == ([1], None)


def test_what_served_at_a_time_is_one_entry_or_none(past, client, problem):
    assert [one["generation"] for one in client.get("/v1/recommenders/m/history?at=2026-01-01T01:30:00Z").json()["items"]] == [2]
    assert [one["generation"] for one in client.get("/v1/recommenders/m/history?at=2026-01-01T02:30:00%2B01:00").json()["items"]] == [2]
    assert client.get("/v1/recommenders/m/history?at=2025-12-31T23:00:00Z").json()["items"] == []
    for wrong in ("yesterday", "2026-01-01T12:00:00", ""):
        assert "at" in problem(client.get(f"/v1/recommenders/m/history?at={wrong}"), 422, "invalid")
    problem(client.get("/v1/recommenders/x/history"), 404, "not-found")


def test_garbage_is_collected_on_demand_and_previewed(world, client):
    found = client.post("/v1/gc?dry_run=true").json()
    assert (found["dry_run"], found["versions"], found["blobs"], found["bytes"]) == (True, [{"recommender": "m", "version": 1}], 3, 7)
    assert client.post("/v1/gc").json()["dry_run"] is False
    assert world.swept == [True, False]
