"""Every route with every role, in and out of a token's scope: the outcome is that of docs/access.md."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest

from services.api.access import ANYBODY, FRAMEWORK, HOLDER, RoleRoute, RoleRouter, table
from services.api.app import ROOMS
from services.api.auth import OPEN
from services.api.examples import EXAMPLES
from shared.contracts.stage import File
from shared.contracts.validation_report import REPORT
from shared.domain.access import Role, Token
from shared.domain.catalogue import ItemWrite
from shared.domain.entity_ids import IdKinds
from shared.domain.errors import no_such
from shared.domain.feature_values import StoredRow
from tests.support.api_requests import SPEC, send
from tests.support.api_world import NOW, VIEW, Client, World
from tests.support.identities import RULES, Provider, jwt_with

TABLE = table(ROOMS)
HIDDEN = {("POST", "/v1/events"): 422, ("DELETE", "/v1/users/{id}"): 422}
"""How a hidden recommender is refused where that isn't a 404."""
SESSIONS = {("POST", "/v1/sessions"): 201, ("POST", "/v1/sessions/current:renew"): 422, ("DELETE", "/v1/sessions/current"): 422}
"""Responses to a token: only a session can be renewed and ended."""
APPLIES = {("POST", "/v1/recommenders"), ("PUT", "/v1/recommenders/{name}")}
"""These routes create the recommender where it is missing."""


def name_of(row):
    return f"{row.method} {row.path}"


def prefix_of(row):
    """The collection of a route: `/v1/runs` of `/v1/runs/{id}:cancel`."""
    return re.match(r"(/v1)?/[\w.]+", row.path).group()


CREDENTIALS = ("token", "JWT")


def holder(world, credential, role, recommenders):
    if credential == "token":
        return world.holder(role, recommenders)
    return Client(world.app, headers={"Authorization": f"Bearer {jwt_with(role, recommenders)}"})


def filled_world(openapi_document):
    """A row of each kind of recommender 'm'."""
    world = World(provider=Provider(), role_rules=RULES)
    world.app.openapi_schema = openapi_document
    world.add_recommender()
    world.recommenders.fix_ids("m", IdKinds("integer", "integer"))
    world.add_run("r0", "cancelled")
    world.add_run("r1", "train", stages=("etl",))
    world.blobs["b" * 64] = json.dumps(EXAMPLES["get_run_validation"]["answer"]).encode()
    world.blobs["d" * 64] = b'{"entries": [], "state": []}'
    world.add_manifest("r1-etl-1", files={REPORT: File(sha256="b" * 64, size=9), "features.json": File(sha256="d" * 64, size=9)})
    world.add_run("r2", "rejected", stages=("etl", "train", "evaluate"))
    world.blobs["c" * 64] = b"{}"
    report = File(sha256="c" * 64, size=2)
    world.add_manifest("r2-train-1", files={"training.json": report})
    world.add_manifest("r2-evaluate-1", files={"report.json": report, "report.html": report})
    world.add_rollout()
    world.add_retrainer()
    world.tokens.add(Token("t0", "shop", "", Role.CLIENT, frozenset({"m"}), NOW, "owner"))
    world.blobs["a" * 64] = json.dumps(EXAMPLES["get_card"]["answer"]).encode()
    world.add_version(files={"model_card.json": File(sha256="a" * 64, size=9)})
    world.catalogue.put("m", [ItemWrite(50, {})], NOW, True)
    world.read(1, VIEW)
    world.features.store.write("m", "user", [StoredRow(17, NOW, {"age": 33})])
    world.registry.tag("m", 1, "champion", None, "owner")
    world.route(stable=1)
    return world


def test_every_route_of_the_app_declares_its_need(world):
    """A route that a Room didn't make would be open to any token."""
    served = {(method, route.path_format) for route in world.app.routes for method in route.methods - {"HEAD"}}
    declared = {(row.method, row.path) for row in TABLE}
    assert served == declared
    for route in world.app.routes:
        assert isinstance(route, RoleRoute) or route.path_format in FRAMEWORK, f"{route.path_format} is no route of a Room"


def test_a_route_without_a_need_cannot_be_made():
    with pytest.raises(ValueError, match="no role is declared"):
        RoleRouter("x").router.get("/x")(lambda: None)


def test_what_is_open_is_what_is_declared_so():
    assert {row.path for row in TABLE if row.need == ANYBODY} == OPEN


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_a_role_may_what_the_table_says(row, openapi_document, subtests):
    for role, credential in product(Role, CREDENTIALS):
        with subtests.test(role=role.value, credential=credential):
            scope = ["m", "books"] if row.scoped else None
            response = send(holder(filled_world(openapi_document), credential, role, scope), row)
            if role in row.roles():
                assert response.status_code not in (401, 403, 404, 405, 500), response.text
            else:
                assert response.status_code == 403, response.text
                assert response.json()["type"].endswith("/forbidden")
                assert f"the token has {role.value}" in response.json()["detail"]
                assert row.need.value in response.json()["detail"]


CLOSED = [row for row in TABLE if row.need != ANYBODY]


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("prefix", sorted({prefix_of(row) for row in CLOSED}))
def test_what_a_token_does_not_see_does_not_exist_for_it(prefix, openapi_document, subtests):
    for row in [row for row in CLOSED if prefix_of(row) == prefix]:
        for role, credential in product(Role, CREDENTIALS):
            with subtests.test(row=name_of(row), role=role.value, credential=credential):
                response = send(holder(filled_world(openapi_document), credential, role, ["books"]), row)
                if role not in row.roles():
                    assert response.status_code == 403, response.text
                elif not row.scoped:
                    assert response.status_code == 403, response.text
                    assert "use a token without a scope" in response.json()["detail"]
                else:
                    check_hidden(row, role, response)


def check_hidden(row, role, response):
    """The token's scope has no row of recommender 'm': the response is that of an empty platform."""
    status = HIDDEN.get((row.method, row.path))
    named = "{name}" in row.path or (row.method, row.path) in APPLIES
    if status or named or "{id}" in row.path:
        assert response.status_code == (status or 404), f"{response.status_code}: does this route need a body in BODIES? {response.text}"
        assert response.json() == response_without_rows(row, role).json(), "the responses for hidden and for missing rows differ"
    elif row.need != HOLDER and row.path != "/v1/recommenders:validate":
        assert '"m"' not in response.text.replace(SPEC, "")
    else:
        assert response.status_code == SESSIONS.get((row.method, row.path), 200)


def response_without_rows(row, role):
    """The response of an empty platform. The token has no scope, except for routes that create what is missing."""
    world = World()
    if row.method == "POST" and row.path == "/v1/events":
        world.gateway.record = lambda events, sees: type(world.gateway).record(world.gateway, events, lambda _: False)
    if row.path in ("/v1/recommend/{name}", "/v1/score/{name}", "/v1/similar/{name}"):
        world.gateway.fails = no_such("recommender", "m")
    return send(world.holder(role, ["books"] if (row.method, row.path) in APPLIES else None), row)
