"""Strings that a database can't keep are refused at the door, with the field's name; on both databases the same."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from services.api.app import create_app
from services.store.engine import open_engine
from services.store.recommenders import SqlRecommenders
from services.store.resources import SqlResources
from services.store.tables import metadata
from shared.contracts.records import RetrainerSpec, RunSpec
from shared.contracts.text import unkeepable
from shared.domain.errors import EyasError
from shared.domain.run import RunStatus
from shared.domain.triggers import RetrainerStatus
from tests.support.api_world import TOKEN, Client, World, document

pytestmark = pytest.mark.requirement("C-01")

ALERT = {"status": "firing", "labels": {"alertname": "A", "recommender": "m"}, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f"}
BAD = {"a NUL": "a\0b", "a lone surrogate": "a\ud800b"}


def bodies(bad):
    """By route: the field, and a body that is good but for it."""
    spec = document()
    return {
        "POST /v1/recommenders": [
            ("data.interactions.uri", {**spec, "data": {**spec["data"], "interactions": {"uri": bad}}}),
            ("gates.1.metric", {**spec, "gates": [{"metric": "auc", "min": 0.6}, {"metric": bad, "min": 1}]}),
        ],
        "POST /v1/recommenders/m/runs": [("reason", {"reason": bad})],
        "POST /v1/runs/r1:cancel": [("reason", {"reason": bad})],
        "POST /v1/recommenders/m:retrain": [("reason", {"reason": bad})],
        "POST /v1/tokens": [
            ("name", {"name": bad, "role": "viewer"}),
            ("recommenders.1", {"name": "n", "role": "viewer", "recommenders": ["m", bad]}),
        ],
        "POST /v1/alerts": [
            ("alerts.0.labels.recommender", {"version": "4", "alerts": [{**ALERT, "labels": {"alertname": "A", "recommender": bad}}]}),
            ("alerts.0.annotations.summary", {"version": "4", "alerts": [{**ALERT, "annotations": {"summary": bad}}]}),
            ("alerts.0.labels", {"version": "4", "alerts": [{**ALERT, "labels": {bad: "x"}}]}),
        ],
        "POST /v1/events": [("events.0.request_id", {"events": [{"recommender": "m", "user": 1, "item": 2, "request_id": bad}]})],
    }


@pytest.fixture
def engine(database_url):
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def client(engine):
    """The app over the database's stores."""
    world = World(engine=engine)
    world.recommenders = SqlRecommenders(engine)
    made = World.add_recommender(world)
    assert made.generation == 1
    stores = {
        "runs": SqlResources(engine, "run", RunStatus, RunSpec),
        "retrainers": SqlResources(engine, "retrainer", RetrainerStatus, RetrainerSpec),
    }
    world.runs, world.retrainers = stores["runs"], stores["retrainers"]
    world.add_run("r1", "train")
    world.add_retrainer()
    app = create_app(world.door(), replace(world.parts(), **stores), world.gateway)
    return Client(app, headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})


def rows(engine):
    with engine.connect() as connection:
        return {table.name: connection.execute(select(table)).all() for table in metadata.sorted_tables if table.name != "audit"}


def test_it_is_refused_by_name_before_it_reaches_a_store(engine, client, problem, subtests):
    for what, bad in BAD.items():
        for route, cases in bodies(bad).items():
            method, path = route.split()
            for field, body in cases:
                with subtests.test(what=what, route=route, field=field):
                    before = rows(engine)
                    response = client.request(method, path, content=json.dumps(body))
                    said = problem(response, 422, "invalid")
                    named = "a key " if field.endswith("labels") else ""
                    assert said.startswith(f"{field}: {named}contains {what}")
                    assert response.json()["errors"][0]["field"] == field
                    assert rows(engine) == before


def test_a_spec_in_yaml_is_held_to_the_same(client, problem, subtests):
    for escape in ('"a\\0b"', '"a\\x00b"', '"a\\ud800b"'):
        with subtests.test(escape=escape):
            text = json.dumps(document()).replace('"a.csv"', escape)
            for content in (text, text.replace("{", "{ # a comment\n", 1)):
                response = client.request("PUT", "/v1/recommenders/m", content=content, headers={"Content-Type": "application/yaml"})
                said = problem(response, 422, "invalid")
                assert "data.interactions.uri: contains" in said or "line 2, column 51: found invalid Unicode character" in said


def test_every_other_text_is_taken_and_kept(client, subtests):
    for text in ("überall", "日本語", "😀", "\x01\t\n", "\ufeff\u200d", "\ue000"):
        with subtests.test(text=text):
            created = client.request("POST", "/v1/recommenders/m/runs", content=json.dumps({"reason": text}))
            path = f"/v1/runs/{created.json()['id']}"
            assert client.get(path).json()["cause"] == text
            assert client.request("POST", f"{path}:cancel", content=json.dumps({"reason": text})).status_code == 202
            assert client.get(path).status_code == 200


def test_why_it_matters(engine):
    """What a store would do with it: one database fails, another one keeps what the first can't take over."""
    fails = engine.dialect.name == "postgresql"
    with pytest.raises((EyasError, DBAPIError, ValueError)) if fails else nullcontext(), engine.begin() as connection:
        connection.execute(metadata.tables["leases"].insert().values(name="a\0b", holder="x", until=World().clock.now()))


def test_places_are_told_in_order_and_deep_nesting_is_no_matter():
    deep = "\0"
    for _ in range(5000):
        deep = [deep]
    assert len(unkeepable(deep)[0][0]) == 5000
    found = unkeepable({"a": ["x", {"b": "\0"}], "c": "\ud800", "d\0": "\0", "e": 1, "f": None, "g": b"\0"})
    assert [(place, said.split(",")[0]) for place, said in found] == [
        ((), "a key contains a NUL character"),
        (("a", 1, "b"), "contains a NUL character"),
        (("c",), "contains a lone surrogate (U+D800)"),
    ]
