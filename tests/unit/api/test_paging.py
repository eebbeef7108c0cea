"""Lists come in pages: nothing twice, nothing lost, and no cursor of somewhere else."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import get_args

import pytest

from services.api import rollouts, runs
from shared.domain import rollout, run
from tests.support.api_world import NOW

LISTS = (
    "/v1/runs",
    "/v1/recommenders/m/runs",
    "/v1/recommenders",
    "/v1/recommenders/m/rollouts",
    "/v1/recommenders/m/versions",
    "/v1/recommenders/m/specs",
    "/v1/recommenders/m/history",
    "/v1/recommenders/m/triggers/history",
    "/v1/runs/r1/events",
    "/v1/rollouts/r1-rollout/events",
    "/v1/tokens",
    "/v1/audit",
)


def crafted(place, cursor):
    """A cursor of the same list with another place."""
    inner = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    return base64.urlsafe_b64encode(json.dumps(inner | {"after": place}).encode()).decode().rstrip("=")


@pytest.fixture
def full(world):
    world.add_recommender()
    for number in range(7):
        world.recommenders.put(world.recommenders.get("m").spec.model_copy(update={"name": f"films-{number}"}), NOW, "ada")
        world.add_run(f"r{number}")
        world.add_rollout(f"r{number}-rollout")
    return world


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("path", ["/v1/recommenders", "/v1/recommenders/m/rollouts"])
def test_rows_that_come_between_pages_make_none_twice_and_none_lost(full, client, path):
    known = [one.get("id", one.get("name")) for one in client.get(path, params={"limit": 200}).json()["items"]]
    seen, cursor = [], None
    for number in range(20):
        page = client.get(path, params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [one.get("id", one.get("name")) for one in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
        full.add_rollout(f"new-{number}", created_at=NOW + timedelta(hours=1))
        full.recommenders.put(full.recommenders.get("m").spec.model_copy(update={"name": f"a-{number}"}), NOW, "ada")
    assert [one for one in seen if one in known] == known
    assert len(set(seen)) == len(seen)


def test_a_damaged_cursor_is_refused_and_says_what_to_do(full, client, problem, subtests):
    for path in LISTS:
        with subtests.test(path=path):
            for cursor in (
                "x",
                "%ff",
                "e30",
                base64.urlsafe_b64encode(b"[" * 700).decode(),
                base64.urlsafe_b64encode(b'{"after":1,"of":1}').decode(),
            ):
                assert "start again without it" in problem(client.get(path, params={"cursor": cursor}), 400, "malformed")


def test_a_cursor_is_good_for_its_list_with_its_filters_alone(full, client, problem):
    cursor = client.get("/v1/recommenders/m/rollouts?limit=2&state=canary").json()["next"]
    assert client.get(f"/v1/recommenders/m/rollouts?state=canary&cursor={cursor}").status_code == 200
    for other in (
        "/v1/recommenders/m/rollouts?",
        "/v1/recommenders/m/rollouts?state=paused&",
        "/v1/recommenders/films-1/rollouts?state=canary&",
    ):
        problem(client.get(f"{other}cursor={cursor}"), 400, "malformed")


def test_a_crafted_place_is_refused_where_it_makes_no_sense(full, client, problem, subtests):
    for place in (7, -1, 2**70, True, None, [], {}, "a\0b", "\ud800", 1.5):
        with subtests.test(place=place):
            cursor = client.get("/v1/recommenders?limit=2").json()["next"]
            problem(client.get("/v1/recommenders", params={"limit": 2, "cursor": crafted(place, cursor)}), 400, "malformed")


def test_a_filter_that_is_written_wrong_is_refused(full, client, problem):
    said = problem(client.get("/v1/recommenders?servng=true"), 422, "invalid")
    assert "'servng'" in said
    assert "cursor, limit, prefix, serving" in said
    assert "takes none" in problem(client.post("/v1/recommenders/m/runs?dry=1"), 422, "invalid")


def test_recommenders_are_found_by_prefix_and_by_whether_they_serve(full, client):
    full.route(1)

    def found(query):
        return [one["name"] for one in client.get(f"/v1/recommenders?{query}").json()["items"]]

    assert found("serving=true") == ["m"]
    assert found("serving=false&limit=2") == ["films-0", "films-1"]
    assert found("prefix=films-3") == ["films-3"]
    assert found("prefix=x") == []


def test_rollouts_are_found_by_state(full, client):
    full.add_rollout("p", "paused")
    full.add_rollout("q", "promoted")

    def found(query):
        return sorted(one["id"] for one in client.get(f"/v1/recommenders/m/rollouts?{query}").json()["items"])

    assert found("state=paused") == ["p"]
    assert found("state=paused&state=promoted") == ["p", "q"]
    assert client.get("/v1/recommenders/m/rollouts?state=done").status_code == 422
    assert set(get_args(rollouts.State)) == set(rollout.MACHINE.states)


def test_runs_are_found_by_state_time_and_whether_they_gave_up(full, client):
    full.add_run("f1", "failed", dead_letter=True)
    full.add_run("f2", "failed")

    def found(query):
        return sorted(one["id"] for one in client.get(f"/v1/runs?{query}").json()["items"])

    assert found("state=failed") == ["f1", "f2"]
    assert found("dead_letter=true") == ["f1"]
    assert found("dead_letter=false&state=failed") == ["f2"]
    assert found("state=failed&state=pending&recommender=m&limit=200")[:2] == ["f1", "f2"]
    assert found("since=2026-01-01T00:00:00.1Z") == []
    assert len(found("until=2026-01-01T00:00:00.1Z")) == 9
    assert found("recommender=films-1") == []
    assert set(get_args(runs.State)) == set(run.MACHINE.states)


def test_a_token_lists_the_runs_of_its_recommenders(full, problem):
    full.runs.create(replace(full.runs.get("r1"), id="x1", recommender="other"), "ada")
    scoped = full.holder("viewer", ["other"])
    assert [one["id"] for one in scoped.get("/v1/runs").json()["items"]] == ["x1"]
    problem(scoped.get("/v1/runs?recommender=m"), 404, "not-found")


def test_a_history_goes_on_from_page_to_page(full, client):
    full.runs.past *= 5
    first = client.get("/v1/runs/r1/events?limit=3").json()
    rest = client.get(f"/v1/runs/r1/events?limit=3&cursor={first['next']}").json()
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 2, None)


def test_a_page_is_full_although_rows_of_others_lie_between(world):
    for number in range(9):
        world.holder("viewer", ["m"] if number % 3 == 0 else ["other"])
    scoped = world.holder("admin", ["m"])
    first = scoped.get("/v1/tokens?limit=2").json()
    rest = scoped.get(f"/v1/tokens?limit=2&cursor={first['next']}").json()
    assert [len(first["items"]), len(rest["items"]), rest["next"]] == [2, 2, None]
