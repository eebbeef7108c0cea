"""Forgetting a user over HTTP: in which recommenders, by whom, and without its id in any log."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest
from sqlalchemy import text

from shared.domain.access import Role
from shared.domain.entity_ids import IdHash, IdKinds
from shared.domain.errors import Unreadable

pytestmark = pytest.mark.requirement("U-11")

ID = "ada <ada@example.org>/é"
PATH = f"/v1/users/{quote(ID, safe='')}"


@pytest.fixture
def world(world):
    for name, kind in (("m", "integer"), ("books", "text"), ("unused", None)):
        world.add_recommender(name=name)
        world.recommenders.fix_ids(name, IdKinds(user=kind))
    return world


def test_a_user_is_forgotten_where_its_id_is_possible(world, client):
    rows = {row.pop("recommender"): row for row in client.delete(PATH).json()["recommenders"]}
    counts = {"interactions": 3, "impressions": 2, "feature_values": 1, "versions": [1, 2]}
    assert {name: rows["books"][name] for name in counts} == counts and rows["books"]["collected_by"] > rows["books"]["forgotten_at"]
    assert rows.keys() == {"books", "unused"}
    assert set(world.forgotten) == {(name, IdHash(b"test").key(ID)) for name in rows}


def test_an_id_that_may_be_an_integer_or_a_text_is_both_until_the_kind_is_fixed(world, client):
    rows = {row["recommender"]: row for row in client.delete("/v1/users/42").json()["recommenders"]}
    assert rows["unused"]["interactions"] == 6 and rows.keys() == {"m", "books", "unused"}
    text = IdHash(b"test").key("42")
    assert sorted(world.forgotten) == sorted([("m", 42), ("books", text), ("unused", 42), ("unused", text)])
    assert [row["recommender"] for row in client.delete("/v1/users/42?recommender=m").json()["recommenders"]] == ["m"]


def test_an_id_that_no_recommender_can_have_is_refused(world, client, problem):
    assert "no recommender has users with such an id" in problem(client.delete(f"{PATH}?recommender=m"), 422, "invalid")
    problem(client.delete("/v1/users/42?recommender=films"), 404, "not-found")
    problem(client.delete(f"/v1/users/{'x' * 257}"), 422, "invalid")
    assert world.forgotten == []


def test_who_is_scoped_forgets_in_its_own_recommenders(world):
    scoped = world.holder(Role.OPERATOR, ["books"])
    assert [row["recommender"] for row in scoped.delete("/v1/users/42").json()["recommenders"]] == ["books"]
    assert scoped.delete("/v1/users/42?recommender=m").status_code == 404
    assert world.holder(Role.VIEWER, None).delete("/v1/users/42").status_code == 403


def test_no_log_has_the_id(world, client, caplog):
    with caplog.at_level(logging.DEBUG):
        client.delete(PATH)
        world.forgetting_fault = Unreadable("a fault")
        assert client.delete(PATH).status_code >= 500
    lines = [record.getMessage() for record in caplog.records if record.name != "httpx"]  # the test's own client
    assert not [line for line in lines if "ada" in line]
    assert "request: failed method=DELETE path=/v1/users/... error=a fault" in lines
    with world.engine.connect() as connection:
        rows = str(connection.execute(text("SELECT * FROM audit")).all())
    assert "ada" not in rows and rows.count("/v1/users/hash-of-23") == 2
