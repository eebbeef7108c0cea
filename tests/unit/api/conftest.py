"""The API over ports in memory, its clients, and its OpenAPI document."""

from __future__ import annotations

import json

import pytest

from tests.support.api_world import World, document


@pytest.fixture
def world():
    return World()


@pytest.fixture
def client(world):
    return world.client


@pytest.fixture
def problem():
    """Checks the form of a problem and hands back its detail."""

    def check(response, status, kind):
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        found = response.json()
        assert found["type"] == f"https://eyas.dev/problems/{kind}"
        assert found["status"] == status
        assert found["title"]
        return found["detail"]

    return check


@pytest.fixture
def spec_text():
    return json.dumps(document())


@pytest.fixture(scope="session")
def openapi_document():
    """The OpenAPI document of the whole API, to read: it takes longer to build than most tests."""
    return World().app.openapi()
