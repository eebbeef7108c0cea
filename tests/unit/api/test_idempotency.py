"""What a client has seen, and what it asks for twice."""

from __future__ import annotations

import pytest

from services.api.idempotency import RETENTION, STALE
from shared.domain.errors import Unavailable
from tests.support.api_world import document

KEY = {"Idempotency-Key": "0b1c"}


def later(world, by):
    now = world.clock.now
    world.clock.now = lambda: now() + by


def die_before_answering(world, client, path, **rest):
    """The process ends after the work and before its answer is kept."""

    def keep(*_):
        raise KeyboardInterrupt

    kept, world.answers.keep = world.answers.keep, keep
    with pytest.raises(BaseException):  # noqa: B017  whatever a dying process raises
        client.post(path, headers=KEY, **rest)
    world.answers.keep = kept


def test_what_is_there_already_is_not_sent_again(world, client):
    world.add_recommender()
    world.add_run()
    world.add_rollout()
    for path in ("/v1/recommenders/m", "/v1/runs/r1", "/v1/rollouts/r1-rollout"):
        first = client.get(path)
        tag = first.headers["etag"]
        again = client.get(path, headers={"If-None-Match": f'"x", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert client.get(path, headers={"If-None-Match": '"x"'}).json() == first.json()


def test_a_tag_changes_with_what_is_shown(world, client):
    world.add_recommender()
    before = client.get("/v1/recommenders/m").headers["etag"]
    world.route(1)
    after = client.get("/v1/recommenders/m").headers["etag"]
    assert before != after
    assert client.get("/v1/recommenders/m", headers={"If-None-Match": before}).status_code == 200


@pytest.mark.requirement("C-01")
def test_a_spec_is_changed_only_by_who_has_seen_it(world, client, problem):
    seen = client.put("/v1/recommenders/m", json=document())
    tag = client.get("/v1/recommenders/m").headers["etag"]
    changed = client.put("/v1/recommenders/m", json=document(gates=[{"metric": "auc", "min": 0.5}]), headers={"If-Match": tag})
    assert (seen.status_code, changed.status_code, changed.json()["generation"]) == (201, 200, 2)
    late = client.put("/v1/recommenders/m", json=document(), headers={"If-Match": tag})
    assert "generation 2" in problem(late, 412, "changed")
    assert client.put("/v1/recommenders/m", json=document(), headers={"If-Match": f'"x", {tag}, "2"'}).status_code == 200
    assert client.put("/v1/recommenders/m", json=document(), headers={"If-Match": "*"}).status_code == 200
    problem(client.put("/v1/recommenders/m", json=document(), headers={"If-Match": "W/" + tag}), 412, "changed")
    problem(client.put("/v1/recommenders/m", json=document(), headers={"If-Match": "2"}), 400, "malformed")


def test_a_recommender_can_be_made_and_never_changed(client, problem):
    only_new = {"If-None-Match": "*"}
    assert client.put("/v1/recommenders/m", json=document(), headers=only_new).status_code == 201
    problem(client.put("/v1/recommenders/m", json=document(), headers=only_new), 412, "changed")
    problem(client.put("/v1/recommenders/m", json=document(), headers={"If-None-Match": '"1"'}), 400, "malformed")
    problem(client.put("/v1/recommenders/n", json=document(name="n"), headers={"If-Match": "*"}), 412, "changed")


def test_a_run_or_rollout_is_steered_only_by_who_has_seen_it(world, client, problem):
    world.add_recommender()
    world.add_run("r1", "train")
    world.add_rollout()
    problem(client.post("/v1/runs/r1:cancel", headers={"If-Match": '"7.x"'}), 412, "changed")
    problem(client.post("/v1/rollouts/r1-rollout:abort", headers={"If-Match": '"7"'}), 412, "changed")
    tag = client.get("/v1/runs/r1").headers["etag"]
    assert client.post("/v1/runs/r1:cancel", headers={"If-Match": tag}).status_code == 202


@pytest.mark.requirement("C-01")
def test_a_request_that_is_sent_again_is_answered_and_not_done_again(world, client):
    world.add_recommender()
    first = client.post("/v1/recommenders/m/runs", json={"reason": "once"}, headers=KEY)
    again = client.post("/v1/recommenders/m/runs", json={"reason": "once"}, headers=KEY)
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(world.runs.rows) == 1
    other = world.holder("operator")
    assert other.post("/v1/recommenders/m/runs", json={"reason": "once"}, headers=KEY).json()["id"] != first.json()["id"]


def test_a_key_is_good_for_one_request_alone(world, client, problem):
    world.add_recommender()
    client.post("/v1/recommenders/m/runs", json={"reason": "once"}, headers=KEY)
    said = problem(client.post("/v1/recommenders/m/runs", json={"reason": "twice"}, headers=KEY), 422, "invalid")
    assert "use a new key" in said
    later(world, RETENTION)
    assert client.post("/v1/recommenders/m/runs", json={"reason": "twice"}, headers=KEY).status_code == 202


def test_a_key_that_is_none_is_refused(world, client, problem, subtests):
    for key in ("", "x" * 201, "a\tb"):
        with subtests.test(key=key):
            world.add_recommender()
            problem(client.post("/v1/recommenders/m/runs", headers={"Idempotency-Key": key}), 400, "malformed")
            assert not world.runs.rows


def test_while_the_first_is_under_way_the_second_is_told_to_wait(world, client, problem):
    world.add_recommender()
    die_before_answering(world, client, "/v1/recommenders/m/runs")
    response = client.post("/v1/recommenders/m/runs", headers=KEY)
    assert "still running" in problem(response, 409, "conflict")
    assert response.headers["retry-after"] == "1"


@pytest.mark.requirement("C-01")
def test_a_run_whose_answer_was_lost_is_adopted(world, client):
    world.add_recommender()
    die_before_answering(world, client, "/v1/recommenders/m/runs")
    [made] = world.runs.rows
    later(world, STALE)
    found = client.post("/v1/recommenders/m/runs", headers=KEY)
    assert (found.status_code, found.json()["id"], list(world.runs.rows)) == (202, made, [made])


def test_a_spec_whose_answer_was_lost_gets_its_one_run(world, client):
    die_before_answering(world, client, "/v1/recommenders", json=document())
    [run] = world.runs.rows
    later(world, STALE)
    found = client.post("/v1/recommenders", json=document(), headers=KEY)
    assert (found.status_code, found.json()["run"], list(world.runs.rows)) == (201, run, [run])


def test_a_spec_whose_answer_was_lost_is_not_applied_again_over_a_newer_one(world, client):
    die_before_answering(world, client, "/v1/recommenders", json=document())
    client.post("/v1/recommenders", json=document(gates=[{"metric": "auc", "min": 0.5}]))
    later(world, STALE)
    client.post("/v1/recommenders", json=document(), headers=KEY)
    assert (world.recommenders.get("m").generation, len(world.runs.rows)) == (2, 2)


def test_a_spec_without_a_run_whose_answer_was_lost_is_answered_as_new(world, client):
    die_before_answering(world, client, "/v1/recommenders?run=false", json=document())
    later(world, STALE)
    found = client.post("/v1/recommenders?run=false", json=document(), headers=KEY)
    assert (found.status_code, found.json()["run"], world.runs.rows) == (201, None, {})


def test_a_rollback_whose_answer_was_lost_goes_back_once(world, client):
    world.add_recommender()
    world.route(2)
    world.routes.before["m"] = 1
    world.server.versions = frozenset({1, 2})
    die_before_answering(world, client, "/v1/recommenders/m:rollback")
    world.routes.history = lambda name, limit=100, before=None: [entry]
    entry = type("Entry", (), {"actor": "owner", "reason": world.routes.said[-1][1], "route": world.routes.rows["m"]})
    later(world, STALE)
    found = client.post("/v1/recommenders/m:rollback", headers=KEY)
    assert (found.status_code, found.json()["stable"], len(world.routes.said)) == (202, 1, 1)


def test_what_was_asked_before_the_answer_was_lost_is_not_asked_again(world, client):
    world.add_recommender()
    world.add_run("r1", "train")
    die_before_answering(world, client, "/v1/runs/r1:cancel")
    later(world, STALE)
    assert client.post("/v1/runs/r1:cancel", headers=KEY).status_code == 202


def test_a_fault_of_the_platform_is_not_an_answer_to_keep(world, client, problem):
    world.add_recommender()
    create = world.runs.create

    def away(*_):
        raise Unavailable("the database is away")

    world.runs.create = away
    problem(client.post("/v1/recommenders/m/runs", headers=KEY), 503, "unavailable")
    world.runs.create = create
    assert client.post("/v1/recommenders/m/runs", headers=KEY).status_code == 202


def test_a_refusal_is_an_answer_and_a_conflict_is_none(world, client, problem):
    problem(client.post("/v1/recommenders/x/runs", headers=KEY), 404, "not-found")
    world.add_recommender(name="x")
    problem(client.post("/v1/recommenders/x/runs", headers=KEY), 404, "not-found")
    mine = {"Idempotency-Key": "other"}
    problem(client.post("/v1/recommenders/x/runs", json={"mode": "warm"}, headers=mine), 409, "conflict")
    world.route(1)
    world.routes.rows["x"] = world.routes.rows["m"]
    assert client.post("/v1/recommenders/x/runs", json={"mode": "warm"}, headers=mine).status_code == 202


def test_a_tokens_secret_is_kept_nowhere(world, client, problem):
    problem(client.post("/v1/tokens", json={"name": "shop", "role": "client"}, headers=KEY), 422, "invalid")
    with world.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT * FROM stored_responses").all() == []
    assert world.tokens.list() == []


def test_events_are_taken_once(world, client):
    body = {"events": [{"recommender": "m", "user": 1, "item": 2}]}
    for _ in range(3):
        assert client.post("/v1/events", json=body, headers=KEY).json()["accepted"] == 1
    assert len(world.gateway.recorded) == 1
