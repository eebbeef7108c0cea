"""The rooms of each role: what a process hasn't, it doesn't pretend to have."""

from __future__ import annotations

import pytest

from services.api.app import create_app
from tests.support.api_world import TOKEN, Client, World


def client(app):
    return Client(app, headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def world():
    return World()


def test_the_control_plane_has_no_online_routes(world):
    asked = client(create_app(world.door(), world.parts(), None))
    assert asked.get("/v1/recommenders").status_code == 200
    assert asked.get("/readyz").status_code == 200
    assert asked.post("/v1/recommend/m", json={"user": 1}).status_code == 404
    assert asked.post("/v1/events", json={"events": []}).status_code == 404


def test_a_gateway_has_the_online_routes_alone(world):
    asked = client(create_app(world.door(), None, world.gateway))
    assert asked.post("/v1/recommend/m", json={"user": 1}).status_code == 200
    assert asked.post("/v1/events", json={"events": []}).status_code == 202
    assert asked.get("/readyz").status_code == 200
    for path in ("/v1/runs", "/v1/recommenders", "/v1/serving", "/v1/rollouts/r1"):
        assert asked.get(path).status_code == 404
    paths = asked.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/healthz", "/readyz", "/v1/recommend/{name}", "/v1/score/{name}", "/v1/similar/{name}", "/v1/events"}


def test_both_ask_for_the_token(world):
    for app in (create_app(world.door(), world.parts(), None), create_app(world.door(), None, world.gateway)):
        assert Client(app).get("/v1/recommenders").status_code == 401
        assert Client(app).post("/v1/recommend/m", json={"user": 1}).status_code == 401
