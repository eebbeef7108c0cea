"""Values of users over HTTP: typed by the views of the versions that serve, newest wins, all or none."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest

from services.api.features import MOST_AT_ONCE
from shared.contracts.online import OnlineColumn
from shared.domain.errors import Unavailable, Unreadable
from shared.domain.feature_values import StoredRow
from tests.support.api_world import NOW, VIEW

pytestmark = pytest.mark.requirement("G-08")
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
PATH = "/v1/features/m/user"


@pytest.fixture
def world(world):
    world.add_recommender()
    world.route(stable=1)
    world.read(1, VIEW)
    return world


def row(key, **values):
    return {"key": key, "values": values}


def put(client, *rows):
    return client.put(PATH, json={"rows": list(rows)})


def test_what_is_written_is_read_back(world, client):
    response = put(client, row(17, age=34, mean=0.1, tags=["a"]), {**row(-1, age=None), "at": "2025-12-31T00:00:00+00:00"})
    assert (response.status_code, response.json()) == (200, {"accepted": 2, "standing": 2})
    found = client.get(f"{PATH}/17").json()
    assert [(one["version"], one["expired"]) for one in found["rows"]] == [(None, False)]
    assert found["rows"][0]["values"] == {"age": 34, "mean": pytest.approx(0.1, rel=1e-7), "tags": ["a"]}
    assert found["rows"][0]["at"].startswith("2026-01-01T")
    assert client.get(f"{PATH}/-1").json()["rows"][0] | {} == {
        "version": None,
        "at": "2025-12-31T00:00:00Z",
        "expired": False,
        "values": {},
    }


def test_the_history_has_it_too(world, client):
    put(client, {**row(17, age=1), "at": "2025-12-01T00:00:00Z"}, {**row(17, age=2), "at": "2025-12-02T00:00:00Z"})
    rows = world.history.as_of("m", "user", [(17, NOW - 30.5 * DAY), (17, NOW)], None)
    assert [row.values["age"] for row in rows] == [1, 2]


def test_a_late_row_changes_nothing_and_is_counted_so(client):
    put(client, row(17, age=34))
    assert put(client, {**row(17, age=1), "at": "2025-12-01T00:00:00Z"}).json() == {"accepted": 1, "standing": 0}
    assert client.get(f"{PATH}/17").json()["rows"][0]["values"] == {"age": 34}


def test_what_versions_were_published_with_stands_beside_it(world, client):
    world.route(stable=1, candidate=2, weight=0.5)
    world.read(2, VIEW)
    world.features.store.write("m", "user@1", [StoredRow(17, NOW - DAY, {"age": 1})])
    world.features.store.write("m", "user@2", [StoredRow(17, NOW - 40 * DAY, {"age": 2})])
    put(client, row(17, age=34))
    assert [(one["version"], one["expired"], one["values"]) for one in client.get(f"{PATH}/17").json()["rows"]] == [
        (None, False, {"age": 34}),
        (1, False, {"age": 1}),
        (2, True, {}),
    ]


def test_views_are_listed_with_who_reads_them(world, client):
    world.route(stable=1, candidate=2, weight=0.5)
    world.read(2, VIEW.model_copy(update={"ttl": None, "rows": 7}))
    world.unloaded.add(2)
    found = client.get("/v1/features/m").json()["views"]
    assert [(one["version"], one["ttl"], one["rows"], one["loaded"]) for one in found] == [(1, "30d", 610, True), (2, None, 7, False)]
    assert found[0]["columns"][2] == {"name": "tags", "dtype": "string", "width": 2}


INVALID_VALUES = [
    ({"agee": 3}, "unknown column 'agee': did you mean 'age'"),
    ({"age": 3.5}, "age: expected a 64-bit integer, got '3.5'"),
    ({"age": True}, "age: expected a 64-bit integer"),
    ({"age": 2**63}, "age: expected a 64-bit integer"),
    ({"mean": 1e39}, "mean: expected a number that fits float32"),
    ({"mean": "x"}, "mean: expected a number"),
    ({"tags": ["a", "b", "c"]}, "tags: expected a list of at most 2"),
    ({"tags": "ab"}, "tags: expected a list of at most 2"),
    ({"tags": [1]}, "tags: expected a text"),
    ({"tags": ["x" * 501]}, "tags: expected a text"),
]


def test_a_wrong_value_is_named_with_its_row_and_nothing_is_written(world, client, problem, subtests):
    for values, said in INVALID_VALUES:
        with subtests.test(values=values):
            detail = problem(put(client, row(1, age=1), row(2, **values)), 422, "invalid")
            assert detail.startswith("rows.1: ")
            assert said in detail
            assert detail.endswith("nothing of this request was written")
            assert world.features.store.marks() == {}


UNSOUND = ['{"age": NaN}', '{"mean": Infinity}', '{"\\ud800": 1}', '{"tags": ["\\ud800"]}', '{"tags": ["a\\u0000"]}']


def test_what_no_json_or_no_database_holds_is_refused(world, client, subtests):
    for text in UNSOUND:
        with subtests.test(text=text):
            body = f'{{"rows": [{{"key": 1, "values": {text}}}]}}'
            response = client.put(PATH, content=body, headers={"Content-Type": "application/json"})
            assert response.status_code in (400, 422), response.text
            assert json.loads(response.content)["detail"]
            assert world.features.store.marks() == {}


def test_a_time_that_is_still_to_come_or_has_no_zone_is_refused(client, problem):
    assert "is in the future" in problem(put(client, {**row(1, age=1), "at": "2026-01-01T00:00:09Z"}), 422, "invalid")
    problem(put(client, {**row(1, age=1), "at": "2026-01-01T00:00:00"}), 422, "invalid")
    assert put(client, {**row(1, age=1), "at": "2026-01-01T00:00:02Z"}).status_code == 200, "clocks may be a little apart"


def test_a_request_is_bounded(client, problem):
    assert put(client, *[row(key, age=1) for key in range(MOST_AT_ONCE)]).json()["accepted"] == MOST_AT_ONCE
    problem(put(client, *[row(key, age=1) for key in range(MOST_AT_ONCE + 1)]), 422, "invalid")
    assert put(client).json() == {"accepted": 0, "standing": 0}


def test_codes_that_a_version_made_are_nobody_elses(world, client, problem):
    world.read(1, VIEW.model_copy(update={"fitted": True}))
    assert "each version of 'm' makes itself" in problem(put(client, row(1, age=1)), 422, "invalid")


def test_a_candidates_new_column_may_be_written_before_it_takes_over(world, client):
    more = OnlineColumn(name="city", dtype="string")
    other = OnlineColumn(name="age", dtype="string")
    world.route(stable=1, candidate=2, weight=0.1)
    world.read(2, VIEW.model_copy(update={"columns": (other, more)}))
    assert put(client, row(1, age=3, city="Basel")).status_code == 200
    assert put(client, row(1, age="3")).status_code == 422, "the stable version's type counts"


def test_what_is_not_there_is_not_found(world, client, problem):
    problem(client.get(f"{PATH}/17"), 404, "not-found")
    problem(client.get("/v1/features/m/other/17"), 404, "not-found")
    problem(client.put("/v1/features/m/other", json={"rows": []}), 404, "not-found")
    problem(client.get("/v1/features/nobody"), 404, "not-found")
    for wrong in ("User", "user@1", "a:b"):
        assert client.put(f"/v1/features/m/{wrong}", json={"rows": []}).status_code in (404, 422)


def test_a_recommender_that_serves_nothing_has_no_views_yet(world, client, problem):
    world.routes.rows.clear()
    assert "serves nothing yet" in problem(client.get("/v1/features/m"), 409, "conflict")


def test_a_store_that_is_away_loses_nothing(world, client, problem, monkeypatch):
    def away(*_):
        raise Unavailable("Redis doesn't answer")

    monkeypatch.setattr(world.features.store, "write", away)
    problem(put(client, row(17, age=34)), 503, "unavailable")
    assert [row.values for row in world.history.latest("m", "user", 9)] == [{"age": 34}]


def test_all_is_loaded_anew_when_it_is_asked_for(world, client):
    response = client.post("/v1/features/m:materialise")
    assert (response.status_code, response.json()) == (200, {"views": 2})
    assert world.asked_again == ["m"]


def test_with_a_recommender_its_users_values_go(world, client):
    assert client.delete("/v1/recommenders/m").status_code == 204
    assert world.dropped == ["m"]


@pytest.mark.requirement("U-11")
def test_values_of_before_a_forgetting_are_left_out_and_later_ones_are_those_of_a_new_user(world, client):
    world.ledger.forget("m", 17, lambda: NOW - HOUR)
    rows = [{"key": key, "at": at.isoformat(), "values": {"age": 34}} for key in (17, 18) for at in (NOW - 2 * HOUR, NOW - HOUR)]
    assert client.put("/v1/features/m/user", json={"rows": rows}).json() == {"accepted": 4, "standing": 1}
    assert [stored.key for stored in world.history.latest("m", "user", 9)] == [18]
    later = {"key": 17, "at": (NOW - HOUR / 2).isoformat(), "values": {"age": 35}}
    assert client.put("/v1/features/m/user", json={"rows": [later]}).json()["standing"] == 1
    assert client.get("/v1/features/m/user/17").json()["rows"][0]["values"] == {"age": 35}


@pytest.mark.requirement("U-11")
def test_a_failed_request_logs_no_key_of_a_user(world, client, caplog):
    world.routes.get = lambda name: fail(Unreadable("a fault"))
    with caplog.at_level(logging.DEBUG, "services"):
        assert client.get("/v1/features/m/user/4711").status_code == 500
    assert "path=/v1/features/m/user/... error=a fault" in caplog.text and "4711" not in caplog.text


def fail(error):
    raise error
