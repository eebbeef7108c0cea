"""Every route, every role, in scope and out of it: what happens is what docs/access.md says."""

from __future__ import annotations

import json

import pytest

from services.api.access import ANYBODY, FRAMEWORK, HOLDER, Guarded, Permission, Room, table
from services.api.app import ROOMS
from services.api.auth import OPEN
from services.api.examples import EXAMPLES
from shared.contracts.stage import File
from shared.contracts.validation_report import REPORT
from shared.domain.access import Role, Token
from shared.domain.catalogue import ItemWrite
from shared.domain.stored import StoredRow
from tests.unit.api.conftest import NOW, VIEW, World

TABLE = table(ROOMS)
WORDS = {
    "{name}": "m",
    "{verb}": "pause",
    "{version}": "1",
    "{generation}": "1",
    "{tag}": "champion",
    "{item}": "50",
    "{view}": "user",
    "{key}": "17",
    "/compare": "/compare?with=r1",
}
ROWS = {"/v1/runs/": "r1", "/v1/rollouts/": "r1-rollout", "/v1/tokens/": "t0"}
"""What `{id}` means under each prefix: a row of recommender 'm' that the world below has."""
OVER = {"/v1/runs/{id}/stream": "r0", "/v1/runs/{id}/logs/stream": "r0", "/v1/runs/{id}/evaluation": "r2"}
"""Streams end with what they tell of; a report is of a run that was judged."""
BODIES = {
    ("POST", "/v1/events"): {"events": [{"recommender": "m", "user": 1, "item": 2}]},
    ("POST", "/v1/recommend/{name}"): {"user": 1},
    ("POST", "/v1/score/{name}"): {"user": 1, "items": [10]},
    ("POST", "/v1/similar/{name}"): {"item": 10},
    ("PUT", "/v1/items/{name}"): {"items": []},
    ("POST", "/v1/items/{name}"): {"items": []},
    ("POST", "/v1/items/{name}:delete"): {"items": [50]},
    ("PUT", "/v1/features/{name}/{view}"): {"rows": [{"key": 17, "values": {"age": 34}}]},
    ("POST", "/v1/tokens"): {"name": "new", "role": "client", "recommenders": ["m"]},
    ("POST", "/v1/runs/{id}:prioritise"): {"priority": 1},
    ("POST", "/v1/recommenders/{name}/rollouts"): {"version": 1},
    ("POST", "/v1/alerts"): {
        "version": "4",
        "alerts": [
            {
                "status": "firing",
                "labels": {"alertname": "HitRateLow", "recommender": "m"},
                "startsAt": "2026-01-01T00:00:00Z",
                "fingerprint": "f1",
            }
        ],
    },
}
"""Good bodies of the routes that read the recommender, or its row, from or after their body."""
SPECS = {
    ("POST", "/v1/recommenders"),
    ("PUT", "/v1/recommenders/{name}"),
    ("POST", "/v1/recommenders:validate"),
    ("POST", "/v1/recommenders:plan"),
}
HIDDEN = {("POST", "/v1/events"): 422}
"""How a recommender that isn't there is refused where that isn't a 404."""


@pytest.fixture
def world(world):
    world.add_recommender()
    world.add_run("r0", "cancelled")
    world.add_run("r1", "train", stages=("etl",))
    world.blobs["b" * 64] = json.dumps(EXAMPLES["get_run_validation"]["answer"]).encode()
    world.blobs["d" * 64] = b'{"entries": [], "state": []}'
    world.add_manifest("r1-etl-1", files={REPORT: File(sha256="b" * 64, size=9), "features.json": File(sha256="d" * 64, size=9)})
    world.add_run("r2", "rejected", stages=("etl", "train", "evaluate"))
    world.blobs["c" * 64] = b"{}"
    report = File(sha256="c" * 64, size=2)
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


def ask(client, row, spec_text):
    path = row.path
    for word, value in WORDS.items():
        path = path.replace(word, value)
    if "{id}" in path:
        known = [id for prefix, id in ROWS.items() if path.startswith(prefix)]
        assert known, f"say in ROWS which row {row.path} is tried with"
        path = path.replace("{id}", OVER.get(path, known[0]))
    assert "{" not in path, f"say in WORDS what {row.path} is tried with"
    if (row.method, row.path) in SPECS:
        return client.request(row.method, path, content=spec_text)
    body = BODIES.get((row.method, row.path))
    return client.request(row.method, path, **({"json": body} if body is not None else {}))


def test_every_route_of_the_app_declares_its_need(world):
    """A route that a Room didn't make would be open to any token."""
    served = {(method, route.path) for route in world.app.routes for method in route.methods - {"HEAD"}}
    declared = {(row.method, row.path) for row in TABLE}
    assert served == declared
    for route in world.app.routes:
        assert isinstance(route, Guarded) or route.path in FRAMEWORK, f"{route.path} is no route of a Room"


def test_a_route_without_a_need_cannot_be_made():
    with pytest.raises(ValueError, match="no role is declared"):
        Room("x").router.get("/x")(lambda: None)


def test_what_is_open_is_what_is_declared_so():
    assert {row.path for row in TABLE if row.need == ANYBODY} == OPEN


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.method} {row.path}")
def test_a_role_may_what_the_table_says(world, spec_text, row: Permission, role: Role):
    response = ask(world.holder(role, ["m", "books"] if row.scoped else None), row, spec_text)
    if role in row.roles():
        assert response.status_code not in (401, 403, 404, 405, 500), response.text
    else:
        assert response.status_code == 403, response.text
        assert response.json()["type"].endswith("/forbidden")
        assert f"the token has {role.value}" in response.json()["detail"]
        assert row.need.value in response.json()["detail"]


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("row", [row for row in TABLE if row.need != ANYBODY], ids=lambda row: f"{row.method} {row.path}")
def test_what_a_token_does_not_see_does_not_exist_for_it(world, spec_text, row: Permission, role: Role):
    response = ask(world.holder(role, ["books"]), row, spec_text)
    if role not in row.roles():
        assert response.status_code == 403, response.text
        return
    if not row.scoped:
        assert response.status_code == 403, response.text
        assert "use one without a scope" in response.json()["detail"]
        return
    hidden = HIDDEN.get((row.method, row.path))
    named = "{name}" in row.path or (row.path in ("/v1/recommenders",) and row.method == "POST")
    if hidden or named or "{id}" in row.path:
        assert response.status_code == (hidden or 404), f"{response.status_code}: does this route need a body in BODIES? {response.text}"
        missing = _elsewhere(row, role, spec_text)
        assert response.json() == missing.json(), "a hidden one is told from a missing one"
    elif row.need != HOLDER and row.path != "/v1/recommenders:validate":
        assert '"m"' not in response.text.replace(spec_text, "")
    else:
        assert response.status_code == 200


def _elsewhere(row, role, spec_text):
    """The same question where there is no such thing, put by somebody who sees everything. (Whoever applies a spec makes it.)"""
    world = World()
    creates = row.path in ("/v1/recommenders", "/v1/recommenders/{name}") and row.method in ("POST", "PUT")
    if row.method == "POST" and row.path == "/v1/events":
        world.gateway.record = lambda events, sees: type(world.gateway).record(world.gateway, events, lambda _: False)
    if row.path in ("/v1/recommend/{name}", "/v1/score/{name}", "/v1/similar/{name}"):
        from shared.domain.errors import no_such

        world.gateway.fails = no_such("recommender", "m")
    return ask(world.holder(role, ["books"] if creates else None), row, spec_text)
