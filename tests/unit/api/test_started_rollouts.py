"""A rollout that somebody starts: of what was registered, by the spec as it stands, and refused with what to do instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.api.idempotency import STALE
from shared.domain.machine import Request
from tests.support.api_world import NOW, document
from tests.unit.api.test_idempotency import KEY, die_before_answering, later

pytestmark = pytest.mark.requirement("C-05")

PATH = "/v1/recommenders/m/rollouts"


@pytest.fixture
def made(world):
    """Version 1 serves; version 2's canary was aborted."""
    world.add_recommender()
    world.add_version(1)
    world.add_version(2, "r2")
    world.add_rollout("r2-rollout", "aborted", 2)
    world.route(1)
    return world


def started(world):
    return {id: one for id, one in world.rollouts.rows.items() if id != "r2-rollout"}


def test_a_version_that_was_aborted_is_rolled_out_again_by_the_spec_as_it_stands(made, client):
    made.add_recommender(rollout={"steps": ["3%"], "shadow": "10m"})
    answer = client.post(PATH, json={"version": 2, "reason": "it was the network"})
    assert answer.status_code == 201
    one = answer.json()
    [record] = started(made).values()
    assert (record.id, record.spec.version, record.spec.document["rollout"]["shadow"]["for"]) == (one["id"], 2, "10m")
    assert (one["version"], one["kind"], one["state"], one["steps"]) == (2, "canary", "pending", [0.03])
    assert (one["asked_by"], one["cause"], one["answers_to"]) == ("owner", "it was the network", ["abort"])
    assert made.woken == 1
    assert client.get(f"/v1/rollouts/{one['id']}").json() == one


def test_who_started_it_and_why_is_its_first_reason_and_in_the_audit_log(made, client):
    one = made.holder("operator").post(PATH, json={"version": 2, "reason": "the outage is over"}).json()
    record = made.rollouts.get(one["id"])
    assert record.status.reason == one["reason"] == "start by holder-1: the outage is over"
    assert (record.spec.start, record.spec.back) == (Request("start", "holder-1", "the outage is over"), None)
    entry = client.get("/v1/audit").json()["items"][0]
    assert (entry["actor"], entry["action"], entry["status"], entry["recommender"], entry["detail"]) == (
        "holder-1",
        "POST /v1/recommenders/{name}/rollouts",
        201,
        "m",
        "the outage is over",
    )


def test_of_a_rollout_that_a_run_started_nobody_is_named(made, client):
    one = client.get("/v1/rollouts/r2-rollout").json()
    assert (one["asked_by"], one["cause"]) == (None, "")


def test_of_one_that_goes_back_it_is_told_who_asked_for_it(made, client):
    made.routes.before["m"] = 2
    gone = client.post("/v1/recommenders/m:rollback", json={"reason": "it smells"}).json()["rollout"]
    one = client.get(f"/v1/rollouts/{gone}").json()
    assert (one["kind"], one["asked_by"], one["cause"]) == ("rollback", "owner", "it smells")


def test_what_gates_refused_is_no_version_and_is_refused(made, client, problem):
    made.add_run("r3", "rejected", stages=("etl", "train", "evaluate"))
    said = problem(client.post(PATH, json={"version": 3}), 404, "not-found")
    assert said == "recommender 'm' has no version 3: only registered versions can be rolled out"
    problem(client.post("/v1/recommenders/x/rollouts", json={"version": 1}), 404, "not-found")
    assert started(made) == {}


def test_what_is_no_number_of_a_version_is_refused(made, client, problem, subtests):
    for body in ({}, {"version": 0}, {"version": -1}, {"version": 2**31}, {"version": "serving"}, {"version": 2, "to": 1}):
        with subtests.test(body=body):
            problem(client.post(PATH, json=body), 422, "invalid")
            assert started(made) == {}


def test_one_whose_files_are_gone_is_refused(made, client, problem):
    made.registry.gone[2] = NOW
    said = problem(client.post(PATH, json={"version": 2}), 409, "conflict")
    assert "was collected on 2026-01-01" in said and "choose another, or start a run" in said
    assert started(made) == {}


def test_the_version_that_serves_is_refused(made, client, problem):
    said = problem(client.post(PATH, json={"version": 1}), 409, "conflict")
    assert "version 1 of 'm' is already the stable version" in said and "choose another" in said
    made.route(1, candidate=2, weight=0.1)
    problem(client.post(PATH, json={"version": 1}), 409, "conflict")
    assert started(made) == {}


@pytest.mark.parametrize("state, able", [("pending", "abort"), ("canary", "abort, pause, promote, skip"), ("paused", "resume")])
def test_a_second_rollout_of_one_version_is_refused_and_the_first_one_named(made, client, problem, state, able):
    made.rollouts.rows["r2-rollout"] = replace(
        made.rollouts.get("r2-rollout"), status=replace(made.rollouts.get("r2-rollout").status, state=state)
    )
    said = problem(client.post(PATH, json={"version": 2}), 409, "conflict")
    assert f"rollout r2-rollout of version 2 is already {state}" in said and able in said
    assert started(made) == {}


def test_beside_a_rollout_of_another_version_it_stands_in_line(made, client):
    made.add_version(3, "r3")
    made.add_rollout("r3-rollout", "canary", 3)
    one = client.post(PATH, json={"version": 2}).json()
    assert one["state"] == "pending"
    assert made.rollouts.get(one["id"]).created_at > made.rollouts.get("r3-rollout").created_at
    assert made.rollouts.get("r3-rollout").request is None, "which goes on"


def test_where_nothing_serves_only_what_was_proven_may_be_the_first(made, client, problem):
    del made.routes.rows["m"]
    said = problem(client.post(PATH, json={"version": 2}), 409, "conflict")
    assert said.startswith("recommender 'm' serves nothing yet, and version 2 has no parity proof on a real server")
    assert said.endswith("start a new run") and started(made) == {}
    made.registry.rows[1] = replace(made.registry.rows[1], metrics={"parity": 1e-7})
    assert client.post(PATH, json={"version": 2}).status_code == 201


def test_where_the_first_one_is_on_its_way_the_second_needs_no_proof_yet(made, client):
    del made.routes.rows["m"]
    made.add_rollout("r1-rollout", "loading", 1)
    assert client.post(PATH, json={"version": 2}).status_code == 201


def test_the_same_request_again_starts_it_once(made, client):
    first = client.post(PATH, json={"version": 2}, headers=KEY)
    again = client.post(PATH, json={"version": 2}, headers=KEY)
    assert (again.status_code, again.content, len(started(made))) == (201, first.content, 1)


def test_one_whose_answer_was_lost_is_adopted_also_when_it_has_ended(made, client):
    die_before_answering(made, client, PATH, json={"version": 2})
    [(id, record)] = started(made).items()
    made.rollouts.rows[id] = replace(record, status=replace(record.status, state="promoted"))
    made.route(2)
    later(made, STALE)
    found = client.post(PATH, json={"version": 2}, headers=KEY)
    assert (found.status_code, found.json()["id"], found.json()["state"], list(started(made))) == (201, id, "promoted", [id])


def test_one_that_died_before_it_was_made_is_made_by_the_same_name(made, client):
    create, made.rollouts.create = made.rollouts.create, None
    assert client.post(PATH, json={"version": 2}, headers=KEY).status_code == 500
    made.rollouts.create = create
    assert client.post(PATH, json={"version": 2}, headers=KEY).status_code == 201
    assert len(started(made)) == 1


def test_a_refusal_that_may_pass_is_no_answer_to_keep(made, client, problem):
    made.registry.gone[2] = NOW
    problem(client.post(PATH, json={"version": 2}, headers=KEY), 409, "conflict")
    made.registry.gone.clear()
    assert client.post(PATH, json={"version": 2}, headers=KEY).status_code == 201


@pytest.mark.parametrize("role, status", [("client", 403), ("viewer", 403), ("operator", 201), ("admin", 201)])
def test_operators_start_rollouts(made, role, status):
    assert made.holder(role).post(PATH, json={"version": 2}).status_code == status
    assert len(started(made)) == (status == 201)


def test_one_of_a_recommender_that_the_token_does_not_see_is_not_there(made, problem):
    problem(made.holder("operator", ["books"]).post(PATH, json={"version": 2}), 404, "not-found")
    assert started(made) == {}


def test_the_document_of_its_spec_is_the_one_that_is_stored(made, client):
    client.post(PATH, json={"version": 2})
    [record] = started(made).values()
    assert record.spec.document["name"] == document()["name"]
    assert record.spec.document == made.recommenders.get("m").spec.document()
