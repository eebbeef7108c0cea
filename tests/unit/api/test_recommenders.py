"""Recommenders over HTTP."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import yaml

from services.monitor.kpi_history import KpiPeriod, VersionHistories
from shared.domain.access import Role
from shared.domain.catalogue import ItemWrite
from shared.domain.machine import Request
from shared.domain.run import StageDone
from shared.domain.sequential_test import VariantSample
from tests.support.api_world import NOW


@pytest.fixture
def document(spec_text):
    import json

    return json.loads(spec_text)


@pytest.mark.requirement("C-01")
def test_a_new_spec_is_created_and_a_run_starts(world, client, spec_text):
    response = client.post("/v1/recommenders", content=spec_text)
    found = response.json()
    assert (response.status_code, found["name"], found["generation"]) == (201, "m", 1)
    run = world.runs.get(found["run"])
    assert (run.spec.mode, run.spec.cause, run.spec.generation) == ("full", "the spec is new", 1)
    assert run.spec.document == found["spec"]
    assert world.woken


def test_an_equal_spec_changes_nothing_and_a_changed_one_starts_a_run(world, client, document):
    client.post("/v1/recommenders", json=document)
    again = client.post("/v1/recommenders", json=document)
    assert (again.status_code, again.json()["run"], again.json()["generation"]) == (200, None, 1)
    changed = client.post("/v1/recommenders", json={**document, "serve": {"filter": []}})
    assert (changed.status_code, changed.json()["generation"]) == (200, 2)
    assert world.runs.get(changed.json()["run"]).spec.cause == "the spec changed"


def test_an_apply_starts_a_run_by_the_stores_answer_and_not_by_the_clock(world, client, document):
    world.clock.now = lambda: NOW
    first, again = (client.post("/v1/recommenders", json=document) for _ in range(2))
    assert (again.status_code, again.json()["run"], list(world.runs.rows)) == (200, None, [first.json()["run"]])


def test_run_false_starts_none(world, client, document):
    assert client.post("/v1/recommenders?run=false", json=document).json()["run"] is None
    assert world.runs.rows == {}


def test_yaml_is_as_good_as_json(client, document):
    response = client.put("/v1/recommenders/m", content=yaml.safe_dump(document), headers={"Content-Type": "application/yaml"})
    assert response.status_code == 201


def test_put_checks_the_name(client, document, problem):
    assert "'m'" in problem(client.put("/v1/recommenders/other", json=document), 422, "invalid")


def test_validate_fills_in_defaults_and_stores_nothing(world, client, document):
    found = client.post("/v1/recommenders:validate", json=document).json()
    assert found["valid"] is True
    assert found["spec"]["rollout"]["steps"] == [0.05, 0.25, 0.5]
    assert world.recommenders.rows == {}


def test_a_fault_of_the_spec_names_the_field_and_the_nearest_name(client, document, problem):
    said = problem(client.post("/v1/recommenders", json={**document, "rolout": {}}), 422, "invalid")
    assert "unknown field 'rolout': did you mean 'rollout'?" in said


def test_what_is_planned_is_refused_as_not_yet_supported(client, document, problem):
    problem(
        client.post("/v1/recommenders:validate", json={**document, "serve": {"score": {}}}),
        422,
        "not-yet-supported",
    )


def test_no_text_makes_the_platform_stumble(client, problem, subtests):
    for body in (b"", b"\xff\xfe", b"{[a]: 1}", b"a: 2020-13-45", b"a: 1\na: 2", b"!!python/object:os.system {}", b"name: m"):
        with subtests.test(body=body):
            problem(client.post("/v1/recommenders", content=body), 422, "invalid")


def test_a_quantity_beyond_all_bounds_is_the_clients_fault(client, document, problem):
    problem(client.post("/v1/recommenders", json={**document, "retrain": {"cooldown": "99999999999999d"}}), 422, "invalid")


def test_a_recommender_says_what_serves(world, client, problem):
    world.add_recommender()
    assert client.get("/v1/recommenders/m").json()["serving"] is None
    world.route(1, candidate=2, weight=0.25, salt="r2-rollout", step=1)
    serving = client.get("/v1/recommenders/m").json()["serving"]
    assert (serving["stable"], serving["candidate"], serving["weight"], serving["generation"]) == (1, 2, 0.25, 3)
    assert serving["since"] == "2026-01-01T00:00:00Z"
    assert client.get("/v1/recommenders").json()["items"][0]["serving"] == serving
    assert "'x'" in problem(client.get("/v1/recommenders/x"), 404, "not-found")


def test_versions_come_newest_first_and_in_pages(world, client):
    world.add_recommender()
    for number in (1, 2, 3):
        world.add_version(number, f"r{number}")
    first = client.get("/v1/recommenders/m/versions?limit=2").json()
    assert [one["version"] for one in first["items"]] == [3, 2]
    rest = client.get(f"/v1/recommenders/m/versions?limit=2&cursor={first['next']}").json()
    assert ([one["version"] for one in rest["items"]], rest["next"]) == ([1], None)


@pytest.mark.requirement("C-05")
def test_rollback_aborts_the_rollouts_under_way(world, client):
    world.add_recommender()
    world.route(1, candidate=2, weight=0.1)
    world.add_rollout()
    response = client.post("/v1/recommenders/m:rollback", json={"reason": "it smells"})
    assert (response.status_code, response.json()) == (202, {"stable": 1, "aborted": ["r1-rollout"], "rollout": None})
    request = world.rollouts.get("r1-rollout").request
    assert (request.verb, request.reason) == ("abort", "it smells")
    assert world.routes.said == []


@pytest.mark.requirement("C-05")
def test_rollback_without_a_rollout_returns_to_the_previous_stable_version(world, client):
    world.add_recommender()
    world.route(2)
    world.routes.before["m"] = 1
    world.server.versions = frozenset({1, 2})
    assert client.post("/v1/recommenders/m:rollback", json={"reason": "it smells"}).json() == {"stable": 1, "aborted": [], "rollout": None}
    assert world.routes.rows["m"].stable == 1
    assert world.routes.said == [("owner", "rollback by owner: it smells")]


@pytest.mark.requirement("C-05")
def test_a_version_that_is_not_loaded_any_more_is_gone_back_to_by_a_rollout_of_its_own(world, client):
    world.add_recommender()
    world.route(2)
    world.routes.before["m"] = 1
    found = client.post("/v1/recommenders/m:rollback", json={"reason": "it smells"}).json()
    assert (found["stable"], found["aborted"], world.routes.rows["m"].stable) == (2, [], 2)
    (made,) = world.rollouts.rows.values()
    assert (made.id, made.spec.version, made.spec.back) == (found["rollout"], 1, Request("rollback", "owner", "it smells"))
    assert client.get(f"/v1/rollouts/{made.id}").json()["kind"] == "rollback"


@pytest.mark.requirement("C-05")
def test_any_version_that_is_still_there_can_be_gone_back_to(world, client, problem):
    world.add_recommender()
    for number in (1, 2, 3):
        world.add_version(number, f"r{number}")
    world.route(3)
    world.routes.before["m"] = 2
    world.server.versions = frozenset({1, 3})

    def asked(to, status, kind=None):
        response = client.post("/v1/recommenders/m:rollback", json={"to": to})
        return response.json() if kind is None else problem(response, status, kind)

    assert "9" in asked(9, 404, "not-found")
    assert "already serves all users" in asked(3, 409, "conflict")
    assert "to" in asked(0, 422, "invalid")
    world.registry.gone[2] = NOW
    assert "collected on 2026-01-01" in asked(2, 409, "conflict")
    assert asked(1, 202) == {"stable": 1, "aborted": [], "rollout": None}
    assert world.routes.rows["m"].stable == 1


def test_going_back_to_another_version_during_a_rollout_ends_it_first(world, client):
    world.add_recommender()
    for number in (1, 2, 3):
        world.add_version(number, f"r{number}")
    world.route(2, candidate=3, weight=0.1)
    world.add_rollout(version=3)
    world.server.versions = frozenset({1, 2, 3})
    found = client.post("/v1/recommenders/m:rollback", json={"to": 1}).json()
    assert (found["stable"], found["aborted"]) == (2, ["r1-rollout"])
    assert world.rollouts.get("r1-rollout").request.verb == "abort"
    assert world.rollouts.get(found["rollout"]).spec.version == 1
    assert world.routes.said == [], "the route is moved when the rollout under way has ended"


def test_rollback_says_when_there_is_nothing_to_go_back_to(world, client, problem):
    world.add_recommender()
    assert "serves nothing yet" in problem(client.post("/v1/recommenders/m:rollback"), 409, "conflict")
    world.route(1)
    assert "no version before" in problem(client.post("/v1/recommenders/m:rollback"), 409, "conflict")


@pytest.mark.requirement("C-01")
def test_what_is_deleted_is_gone_and_may_be_deleted_again(world, client, document, problem):
    client.post("/v1/recommenders", json=document)
    woken = world.woken
    for _ in range(2):
        assert client.delete("/v1/recommenders/m").status_code == 204
    assert world.woken > woken
    problem(client.get("/v1/recommenders/m"), 404, "not-found")
    assert client.get("/v1/recommenders").json()["items"] == []
    problem(client.delete("/v1/recommenders/x"), 404, "not-found")


@pytest.mark.requirement("C-01")
def test_a_deletion_is_refused_while_work_is_under_way(world, client, problem):
    world.add_recommender()
    world.recommenders.busy.add("m")
    assert "run r1" in problem(client.delete("/v1/recommenders/m"), 409, "conflict")
    assert client.get("/v1/recommenders/m").status_code == 200


@pytest.mark.requirement("C-01")
def test_a_deletion_is_an_admins_and_is_in_the_audit_log(world, problem):
    world.add_recommender()
    problem(world.holder(Role.OPERATOR, ["m"]).delete("/v1/recommenders/m"), 403, "forbidden")
    assert world.holder(Role.ADMIN, ["m"]).delete("/v1/recommenders/m").status_code == 204
    newest, refused = world.audit.list(recommenders=frozenset({"m"}))
    assert (newest.action, newest.status, refused.status) == ("DELETE /v1/recommenders/{name}", 204, 403)


def test_the_schema_of_the_spec_is_there_for_editors(client):
    assert client.get("/v1/schema").json()["properties"]["name"]["pattern"]


OUTSIDE_URIS = [
    "/etc/passwd",
    "../up.csv",
    "/nowhere/data/../x.csv",
    "/nowhere/*/x.csv",
    "file:///etc/*.csv",
    "s3://lake/x.csv",
    "gs://lake/x.csv",
    "hdfs://b/x.csv",
]


def test_a_source_outside_the_data_roots_is_refused_at_once(world, client, document, problem, subtests):
    for uri in OUTSIDE_URIS:
        for field in ("interactions", "items", "users"):
            with subtests.test(field=field, uri=uri):
                data = {**document["data"], field: {**document["data"].get(field, {"key": "userId"}), "uri": uri}}
                for path in ("/v1/recommenders", "/v1/recommenders:validate"):
                    response = client.post(path, json={**document, "data": data})
                    kind = "not-yet-supported" if uri.startswith("hdfs") else "invalid"
                    assert problem(response, 422, kind).startswith(f"data.{field}.uri: {uri}: ")
                assert world.recommenders.rows == {}
                assert world.runs.rows == {}


def test_a_database_that_the_operator_has_not_given_is_a_warning(client, document, monkeypatch):
    monkeypatch.delenv("EYAS_DATABASES", raising=False)
    data = {**document["data"], "users": {"query": "SELECT * FROM users", "from": "shop", "key": "id"}}
    found = client.post("/v1/recommenders:validate", json={**document, "data": data}).json()
    assert found["warnings"][-1].startswith("data.users: from: unknown database 'shop'; known: none")
    data["users"]["query"] = "DELETE FROM users"
    assert client.post("/v1/recommenders:validate", json={**document, "data": data}).status_code == 422


CAMPAIGNS = """
- {name: advent, from: 2026-12-01T00:00:00+01:00, until: 2026-12-25T00:00:00+01:00, rules: [{pin: 815}]}
"""


@pytest.mark.requirement("G-04")
def test_campaigns_of_a_file_become_part_of_the_spec_with_the_files_digest(world, client, document, tmp_path):
    world.more_roots = (str(tmp_path),)
    path = tmp_path / "campaigns.yaml"
    path.write_text(CAMPAIGNS)
    by_uri = {**document, "serve": {"order": {"campaigns": "campaigns.yaml"}}}
    for address in ("/v1/recommenders:validate", "/v1/recommenders"):
        order = client.post(address, json=by_uri).json()["spec"]["serve"]["order"]
        assert [campaign["name"] for campaign in order["campaigns"]] == ["advent"]
        assert order["campaigns_from"] == {"uri": "campaigns.yaml", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert world.recommenders.get("m").spec.serve.order.campaigns[0].rules[0].pin == 815
    assert client.post("/v1/recommenders", json=by_uri).json()["generation"] == 1, "the same file changes nothing"
    path.write_text(CAMPAIGNS.replace("815", "816"))
    assert client.post("/v1/recommenders", json=by_uri).json()["generation"] == 2, "another one is another spec"
    stored = world.recommenders.get("m").spec
    path.unlink()
    assert client.post("/v1/recommenders", json=stored.document()).json()["generation"] == 2, "a stored spec needs no file"


def test_a_viewer_validates_a_spec_without_the_content_of_a_file(world, document, tmp_path):
    world.more_roots = (str(tmp_path),)
    (tmp_path / "campaigns.yaml").write_text("- secret: 1")
    answer = world.holder("viewer").post(
        "/v1/recommenders:validate", json={**document, "serve": {"order": {"campaigns": "campaigns.yaml"}}}
    )
    assert answer.status_code == 200
    assert answer.json()["spec"]["serve"]["order"]["campaigns"] == []
    assert "secret" not in answer.text
    assert "secret" in world.client.post("/v1/recommenders:validate", json=answer.json()["spec"]).text


BAD_CAMPAIGNS = [
    (CAMPAIGNS.replace("pin: 815", "pun: 815"), "campaigns.yaml: campaigns.0.rules.0: unknown rule 'pun': did you mean 'pin'?"),
    (CAMPAIGNS + CAMPAIGNS, "campaigns.yaml: campaigns: two have the name 'advent'"),
    ("name: advent", "campaigns.yaml: expected a list of campaigns"),
    ("other.yaml", "campaigns.yaml: expected a list of campaigns"),
    ("- [", "campaigns.yaml: not valid YAML"),
    ("- " + "x" * 70_000, "campaigns.yaml: larger than 65536 bytes"),
    (CAMPAIGNS.replace("pin: 815", "boost: 'colour == 1'"), "colour"),
    (None, "campaigns.yaml: file not found"),
]


def test_a_file_of_campaigns_is_held_to_what_campaigns_in_the_spec_are(world, client, document, problem, tmp_path, subtests):
    world.more_roots = (str(tmp_path),)
    path = tmp_path / "campaigns.yaml"
    serve = {"attributes": {"price": "number"}, "order": {"campaigns": "campaigns.yaml"}}
    for text, message in BAD_CAMPAIGNS:
        with subtests.test(message=message):
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
            for address in ("/v1/recommenders", "/v1/recommenders:validate", "/v1/recommenders:plan"):
                response = client.post(address, json={**document, "serve": serve})
                assert response.json()["errors"][0]["field"] == "serve.order.campaigns"
                assert message in problem(response, 422, "bad-data" if text is None else "invalid")
            assert world.recommenders.rows == {}
    for uri, message in (("/etc/campaigns.yaml", "not under an allowed data root"), ("/etc/passwd", "whose name ends in .yaml")):
        assert message in problem(
            client.post("/v1/recommenders", json={**document, "serve": {"order": {"campaigns": uri}}}), 422, "invalid"
        )


@pytest.mark.requirement("G-30")
def test_an_encoder_outside_the_data_roots_is_refused_and_one_that_is_not_there_is_a_warning(world, client, document, problem):
    def wanted(encoder, **more):
        encode = {"column": "title", "encoder": encoder, **more}
        key = document["schema"]["item"]
        features = [{"categorify": [document["schema"]["user"], key]}, {"vector": {"of": key, "as": "plot", "width": 3, "encode": encode}}]
        return {**document, "features": features}

    for path in ("/v1/recommenders", "/v1/recommenders:validate", "/v1/recommenders:plan"):
        said = problem(client.post(path, json=wanted("/etc/words.onnx")), 422, "invalid")
        assert said.startswith("features: vector 'plot': encode.encoder: /etc/words.onnx: not under an allowed data root")
        said = problem(client.post(path, json=wanted("words.onnx", images="/etc")), 422, "invalid")
        assert said.startswith("features: vector 'plot': encode.images: /etc: not under an allowed data root")
    for path in ("/v1/recommenders:validate", "/v1/recommenders:plan"):
        found = client.post(path, json=wanted("words.onnx")).json()
        assert found["warnings"][-1] == "features: vector 'plot': encode.encoder: words.onnx: encoder not found"
    assert world.recommenders.rows == {}


def test_a_file_that_is_not_there_now_is_a_warning(client, document):
    found = client.post("/v1/recommenders:validate", json=document).json()
    assert found["valid"] is True
    assert [one.split(": ")[0] for one in found["warnings"]] == ["data.interactions.uri", "data.items.uri"]
    assert "file not found" in found["warnings"][0]
    assert client.post("/v1/recommenders", json=document).status_code == 201


@pytest.mark.requirement("C-01")
def test_every_spec_that_was_applied_can_be_read_with_who_wrote_it(world, client, problem):
    world.add_recommender()
    world.add_recommender(split={"by": "time", "test": 0.3})
    found = client.get("/v1/recommenders/m/specs?limit=1").json()
    assert found["items"] == [{"generation": 2, "at": "2026-01-01T00:00:00Z", "actor": "operator"}]
    (rest,) = client.get(f"/v1/recommenders/m/specs?limit=1&cursor={found['next']}").json()["items"]
    assert rest["generation"] == 1
    first = client.get("/v1/recommenders/m/specs/1").json()
    assert (first["generation"], first["actor"], first["spec"]["name"]) == (1, "operator", "m")
    problem(client.get("/v1/recommenders/m/specs/9"), 404, "not-found")
    problem(client.get("/v1/recommenders/m/specs/0"), 422, "invalid")
    problem(client.get("/v1/recommenders/x/specs"), 404, "not-found")


@pytest.mark.requirement("C-01")
def test_each_wrong_field_of_a_spec_is_told_apart(client, document):
    wrong = {**document, "rollout": {"steps": [3]}, "split": {"test": 7}}
    found = client.post("/v1/recommenders:validate", json=wrong).json()
    assert [one["field"] for one in found["errors"]] == ["split.test", "rollout.steps.0", "rollout.steps"], found


@pytest.mark.requirement("C-09")
def test_the_life_of_its_models_is_told_with_how_sure_it_is(world, client, problem):
    world.add_recommender()
    sample = VariantSample(4, 1.0, 1.0, 8, 2, 1)
    line = [KpiPeriod(NOW, NOW + timedelta(minutes=1), sample)]
    world.life = VersionHistories(NOW, NOW + timedelta(minutes=2), timedelta(minutes=1), NOW, {2: line}, 1)
    found = client.get("/v1/recommenders/m/life?points=2").json()
    (point,) = found["versions"][0]["points"]
    assert (found["every"], found["left_out"], found["versions"][0]["version"]) == (60.0, 1, 2)
    assert (point["users"], point["answers"], point["hits"], point["hit_rate"]) == (4, 8, 2, 0.25)
    assert 0 < point["low"] < 0.25 < point["high"] < 1
    problem(client.get("/v1/recommenders/m/life?since=yesterday"), 422, "invalid")
    problem(client.get("/v1/recommenders/m/life?points=100000"), 422, "invalid")


def with_filter(document, items, *filters, **serve):
    data = {**document["data"], "items": {**document["data"]["items"], "uri": str(items)}}
    return {**document, "data": data, "serve": {"filter": list(filters), **serve}}


@pytest.fixture
def table(world, tmp_path):
    world.more_roots = (str(tmp_path),)
    path = tmp_path / "items.csv"
    path.write_text("movieId,price,genres\n1,2,a\n")
    return path


@pytest.mark.parametrize("verb", ["apply", ":validate", ":plan"])
def test_an_attribute_that_neither_table_nor_catalogue_has_is_refused(world, client, document, table, verb):
    def answer(*filters, **serve):
        address = "/v1/recommenders" + ("" if verb == "apply" else verb)
        return client.post(address, json=with_filter(document, table, *filters, **serve))

    refused = answer("prise < 10")
    assert refused.status_code == 422
    assert "serve.filter: unknown attribute 'prise': did you mean 'price'?" in refused.json()["detail"]
    assert refused.json()["errors"][0]["field"] == "serve.filter"
    order = {"order": {"rules": [{"each": "gendres", "at_most": 1}]}}
    assert "serve.order.rules: unknown attribute 'gendres': did you mean 'genres'?" in answer(**order).json()["detail"]
    assert "unknown attribute 'movieId'" in answer("movieId == 1").json()["detail"], "the key is no attribute"
    assert answer("price < 10", "available").status_code in (200, 201)
    world.catalogue.put("m", [ItemWrite(1, {"region": "de"})], NOW, True)
    assert answer("region == user.region").status_code in (200, 201)
    assert answer("prise < 10", attributes={"prise": "number"}).status_code in (200, 201)


def test_without_the_columns_of_the_table_an_unknown_attribute_is_a_warning(world, client, document, tmp_path):
    spec = with_filter(document, "/nowhere/data/items.parquet", "prise < 10")
    warning = "serve.filter: unknown attribute 'prise': known: none; the columns of the items table are not known yet: the run checks them"
    assert client.post("/v1/recommenders", json=spec).json()["warnings"] == [warning]
    assert warning in client.post("/v1/recommenders:validate", json=spec).json()["warnings"]
    assert warning in client.post("/v1/recommenders:plan", json=spec).json()["warnings"]
    world.catalogue.put("m", [ItemWrite(1, {"price": 1})], NOW, True)
    assert "did you mean 'price'?" in client.post("/v1/recommenders", json=spec).json()["warnings"][0]


def test_the_newest_run_with_this_table_knows_its_columns(world, client, document, tmp_path):
    world.more_roots = (str(tmp_path),)
    path = tmp_path / "items.parquet"
    path.write_bytes(b"PAR1")
    made = client.post("/v1/recommenders", json=with_filter(document, path)).json()
    run = world.runs.get(made["run"])
    done = StageDone("etl", f"{run.id}-etl-1", NOW, NOW)
    world.runs.rows[run.id] = replace(run, status=replace(run.status, stages=(done,)))
    fact = {"at": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(), "columns": ["price", "v"], "attributes": ["price"]}
    world.manifests[done.attempt] = SimpleNamespace(facts={"items_table": fact})
    wrong, right = (with_filter(document, path, text) for text in ("prise < 10", "price < 10"))
    assert client.post("/v1/recommenders:validate", json=wrong).status_code == 422
    assert client.post("/v1/recommenders:validate", json=right).status_code == 200
    viewer = world.holder(Role.VIEWER)
    assert viewer.post("/v1/recommenders:validate", json=wrong).status_code == 422
    stranger = world.holder(Role.VIEWER, ["other"]).post("/v1/recommenders:validate", json=wrong)
    assert (stranger.status_code, any("prise" in warning for warning in stranger.json()["warnings"])) == (200, False)
    os.utime(path, (4e9, 4e9))
    assert client.post("/v1/recommenders:validate", json=wrong).status_code == 200, "the table has changed since"
