"""Every write leaves its line: also the refused, the failed and the one that the process died in."""

from __future__ import annotations

import logging

import pytest

from services.api.access import table
from services.api.app import ROOMS
from shared.domain.access import Role
from shared.domain.errors import Unavailable
from tests.support.api_requests import BODIES, SPEC, SPEC_ROUTES, send
from tests.support.api_world import World

pytestmark = pytest.mark.requirement("C-01")

TABLE = table(ROOMS)
DATA = {
    ("POST", "/v1/events"),
    ("POST", "/v1/recommend/{name}"),
    ("POST", "/v1/score/{name}"),
    ("POST", "/v1/similar/{name}"),
    ("POST", "/v1/recommenders:validate"),
    ("POST", "/v1/sessions/current:renew"),
    ("POST", "/v1/recommenders:plan"),
    ("POST", "/v1/recommenders/{name}:plan"),
}
"""What is no GET and changes no decision."""


def last(client):
    return client.get("/v1/audit?limit=1").json()["items"][0]


def test_all_writes_are_audited_and_no_reads():
    for row in TABLE:
        assert row.audited == (row.method != "GET" and (row.method, row.path) not in DATA), row


@pytest.mark.parametrize("row", [row for row in TABLE if row.audited], ids=lambda row: f"{row.method} {row.path}")
def test_each_write_leaves_one_line_with_its_outcome(row, subtests):
    for role in Role:
        with subtests.test(role=role.value):
            world = World()
            response = send(world.holder(role), row)
            (line,) = world.audit.list()
            assert (line.actor, line.token) == ("holder-1", world.tokens.list()[-1].id)
            assert (line.action, line.status) == (f"{row.method} {row.path}", response.status_code)


def test_a_line_says_who_did_what_to_which_recommender_and_why(world, client):
    world.add_run("r1", "train")
    client.post("/v1/runs/r1:cancel", json={"reason": "too slow"})
    line = last(client)
    assert line.pop("at")
    assert line == {
        "seq": 1,
        "actor": "owner",
        "token": "bootstrap",
        "action": "POST /v1/runs/{id}:cancel",
        "target": "/v1/runs/r1:cancel",
        "recommender": "m",
        "status": 202,
        "detail": "too slow",
    }


def test_nothing_is_done_that_cannot_be_entered(world, client, problem, monkeypatch):
    world.add_run("r1", "train")

    def full(entry):
        raise Unavailable("the database is full")

    monkeypatch.setattr(world.audit, "begin", full)
    problem(client.post("/v1/runs/r1:cancel"), 503, "unavailable")
    assert world.runs.get("r1").request is None


def test_an_outcome_that_cannot_be_entered_is_logged_and_the_line_stays(world, client, monkeypatch, caplog):
    world.add_run("r1", "train")

    def away(*_):
        raise Unavailable("the database went away")

    monkeypatch.setattr(world.audit, "end", away)
    with caplog.at_level(logging.ERROR):
        assert client.post("/v1/runs/r1:cancel").status_code == 202
    assert "audit log: outcome not recorded entry=1" in caplog.text
    assert world.audit.list()[0].status is None


def test_the_line_is_there_when_the_write_happens_and_complete_when_the_answer_leaves(world, client, monkeypatch):
    world.add_run("r1", "train")
    seen = []
    before = world.runs.ask

    def watched(id, request, now, expected=None):
        seen.append(world.audit.list()[0].status)
        return before(id, request, now)

    monkeypatch.setattr(world.runs, "ask", watched)
    client.post("/v1/runs/r1:cancel")
    assert seen == [None]
    assert world.audit.list()[0].status == 202


def test_an_unforeseen_error_is_on_the_line(world, client, monkeypatch):
    world.add_run("r1", "train")
    monkeypatch.setattr(world.runs, "ask", lambda *_: 1 / 0)
    assert client.post("/v1/runs/r1:cancel").status_code == 500
    assert world.audit.list()[0].status == 500


def test_strangers_leave_no_line_but_are_counted(world):
    from shared.telemetry import metrics

    count = metrics.REFUSALS.labels("missing")._value.get
    before = count()
    world.stranger.post("/v1/runs/r1:cancel")
    assert world.audit.list() == []
    assert count() == before + 1


def test_data_leaves_no_line(world, client):
    client.post("/v1/events", json=BODIES["POST", "/v1/events"])
    client.post("/v1/recommend/m", json={"user": 1})
    assert world.audit.list() == []


def test_bodies_and_tokens_are_not_in_the_log(world, client):
    text = client.post("/v1/tokens", json={"name": "shop", "role": "client"}).json()["token"]
    client.post("/v1/recommenders", content=SPEC)
    client.request("POST", f"/v1/runs/{'x' * 3000}%0A%22:cancel")
    said = repr(world.audit.list())
    assert text not in said
    assert text.rsplit("_", 1)[1] not in said
    assert "a.csv" not in said
    assert all(len(line.target) <= 500 and line.target.isprintable() for line in world.audit.list())
    assert len(SPEC_ROUTES) == 4


def test_lines_are_found_by_actor_recommender_action_and_time(world, client):
    world.add_recommender()
    world.add_run("r1", "train")
    client.post("/v1/runs/r1:cancel")
    world.holder("operator").put("/v1/recommenders/m/versions/1/tags/best")
    client.post("/v1/tokens", json={"name": "shop", "role": "client"})

    def found(query):
        return [one["seq"] for one in client.get(f"/v1/audit?{query}").json()["items"]]

    assert found("") == [3, 2, 1]
    assert found("actor=owner") == [3, 1]
    assert found("recommender=m") == [2, 1]
    assert found("action=POST%20/v1/tokens") == [3]
    assert found("until=2026-01-01T00:00:00Z") == []
    assert found("since=2026-01-01T00:00:00Z") == [3, 2, 1]
    first = client.get("/v1/audit?limit=2").json()
    assert found(f"limit=2&cursor={first['next']}") == [1]


def test_a_scoped_admin_reads_what_concerns_its_recommenders(world, client):
    world.add_recommender()
    client.put("/v1/recommenders/m/versions/1/tags/best")
    client.put("/v1/recommenders/films/versions/1/tags/best")
    client.post("/v1/tokens", json={"name": "shop", "role": "client"})
    admin = world.holder("admin", ["films", "books"])
    assert [one["recommender"] for one in admin.get("/v1/audit").json()["items"]] == ["films"]
    assert admin.get("/v1/audit?recommender=m").json()["items"] == []


INVALID_QUERIES = ("limit=0", "limit=201", "before=0", "since=yesterday", "since=2026-01-01T00:00:00", "actor=%00")


def test_a_wrong_question_is_refused(client, subtests):
    for query in INVALID_QUERIES:
        with subtests.test(query=query):
            assert client.get(f"/v1/audit?{query}").status_code == 422
