"""Tokens over HTTP, and what they are refused for at the door."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest

from services.api import access
from shared.domain.access import Role, Token, digest, may_grant
from shared.domain.errors import Unavailable
from tests.support.api_world import NOW, TOKEN, Client

pytestmark = pytest.mark.requirement("C-01")


def make(client, **fields):
    return client.post("/v1/tokens", json={"name": "shop", "role": "client"} | fields)


def holder(world, made):
    return Client(world.app, headers={"Authorization": f"Bearer {made.json()['token']}"})


def test_a_token_is_shown_once_and_only_its_digest_is_kept(world, client):
    made = make(client, recommenders=["m"])
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    text, about = made.json()["token"], made.json()["about"]
    assert re.fullmatch(r"eyas_t[0-9a-z]{16}_[0-9a-f]{64}", text)
    kept = world.tokens.get(about["id"])
    assert kept.digest == digest(text)
    secret = text.rsplit("_", 1)[1]
    assert secret not in repr(kept)
    for path in ("/v1/tokens", f"/v1/tokens/{about['id']}", "/v1/audit"):
        answer = client.get(path).text
        assert secret not in answer
        assert kept.digest not in answer


def test_two_tokens_have_nothing_in_common(client):
    one, two = (make(client, name=name).json()["token"].rsplit("_", 1)[1] for name in ("a", "b"))
    assert one != two


def test_whoami_says_what_the_token_is(world, client):
    assert client.get("/v1/whoami").json() == {
        "name": "owner",
        "token": "bootstrap",
        "role": "admin",
        "recommenders": None,
        "expires_at": None,
        "renewable_at": None,
    }
    made = make(client, recommenders=["m"], expires_in="2h")
    me = holder(world, made).get("/v1/whoami").json()
    assert (me["name"], me["role"], me["recommenders"]) == ("shop", "client", ["m"])
    assert me["expires_at"] == made.json()["about"]["expires_at"]


def test_a_revoked_token_is_refused_by_the_next_request_and_stays_revoked(world, client, problem):
    made = make(client, role="viewer")
    id = made.json()["about"]["id"]
    theirs = holder(world, made)
    assert theirs.get("/v1/recommenders").status_code == 200
    first = client.delete(f"/v1/tokens/{id}")
    assert (first.status_code, first.json()["revoked_by"]) == (200, "owner")
    refused = theirs.get("/v1/recommenders")
    assert "was revoked" in problem(refused, 401, "unauthenticated")
    assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert client.delete(f"/v1/tokens/{id}").json() == first.json()


def test_a_token_ends_at_its_very_instant(world, problem):
    world.app.state.parts.clock.now = lambda: NOW + timedelta(hours=1)
    before = world.holder("viewer", expires_at=NOW + timedelta(hours=1, microseconds=1))
    at = world.holder("viewer", expires_at=NOW + timedelta(hours=1))
    assert before.get("/v1/recommenders").status_code == 200
    assert "has expired" in problem(at.get("/v1/recommenders"), 401, "unauthenticated")


def test_a_stranger_learns_nothing_of_a_token_by_its_id(world, client, problem):
    made = make(client)
    id, text = made.json()["about"]["id"], made.json()["token"]
    client.delete(f"/v1/tokens/{id}")
    wrong = f"eyas_{id}_{'0' * 64}"
    unknown = f"eyas_t{'0' * 16}_{'0' * 64}"
    swapped = f"eyas_t{'0' * 16}_{text.rsplit('_', 1)[1]}"
    said = set()
    for one in (wrong, unknown, swapped):
        stranger = Client(world.app, {"Authorization": f"Bearer {one}"})
        said.add(problem(stranger.get("/v1/runs/x"), 401, "unauthenticated"))
    assert len(said) == 1
    assert id not in said.pop()


INVALID_HEADERS = [
    b"Bearer a-token\x00",
    b"Bearer a-token\r\nX-Role: admin",
    b"Bearer \xc3\xa9",
    b"Bearer eyas_t_\xff",
    b"Bearer eyas__" + b"0" * 64,
    b"Bearer eyas_" + b"a" * 41 + b"_" + b"0" * 64,
    b"Bearer eyas_' OR 1=1 --_" + b"0" * 64,
    b"Bearer " + b"x" * 60_000,
    b"Bearer\ta-token",
    b"bearera-token",
    b"Bearer a-token,Bearer a-token",
]


async def response_to(app, header):
    """The messages of the app's response to a request with any bytes as its credential."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/recommenders",
        "raw_path": b"/v1/recommenders",
        "query_string": b"",
        "headers": [(b"authorization", header)],
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent


def test_odd_credentials_are_refused_without_asking_the_store(world, monkeypatch, subtests):
    monkeypatch.setattr(world.tokens, "get", lambda id: pytest.fail(f"asked for {id!r}"))
    for header in INVALID_HEADERS:
        with subtests.test(header=header):
            start, body = asyncio.run(response_to(world.app, header))[:2]
            assert start["status"] == 401
            assert header.split(b" ")[-1] not in body["body"]


def test_two_credentials_are_none(world):
    twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
    assert Client(world.app, twice).get("/v1/recommenders").status_code == 401


def test_secrets_are_compared_in_constant_time(world, client, monkeypatch):
    """By the comparison that is made for it, and by nothing else: both for the first token and for the others."""
    from services.api import credentials

    compared = []
    monkeypatch.setattr(credentials.hmac, "compare_digest", lambda one, two: compared.append((one, two)) or False)
    world.holder("viewer").get("/v1/recommenders")
    assert compared == [(compared[0][0], digest(TOKEN)), (compared[0][0], world.tokens.list()[0].digest)]


def test_a_store_that_is_away_is_said_and_lets_nobody_in(world, monkeypatch, problem):
    def away(id):
        raise Unavailable("the database at db.internal doesn't answer")

    client = world.holder("admin")
    monkeypatch.setattr(world.tokens, "get", away)
    assert "db.internal" not in problem(client.get("/v1/recommenders"), 503, "unavailable")


def test_the_first_token_is_not_revoked_by_the_api(client, problem):
    assert "delete its file" in problem(client.delete("/v1/tokens/bootstrap"), 409, "conflict")
    assert client.get("/v1/whoami").status_code == 200


def test_a_name_has_one_living_token(client, problem):
    first = make(client).json()["about"]["id"]
    assert "shop" in problem(make(client), 409, "conflict")
    client.delete(f"/v1/tokens/{first}")
    assert make(client).status_code == 201


INVALID_TOKENS = [
    ({"name": "Shop"}, "name"),
    ({"name": "owner"}, "name"),
    ({"name": "eyas"}, "name"),
    ({"name": "a\nb"}, "name"),
    ({"role": "root"}, "role"),
    ({"recommenders": []}, "recommenders"),
    ({"recommenders": ["../x"]}, "recommenders.0"),
    ({"expires_in": "0s"}, "expires_in"),
    ({"expires_in": "soon"}, "expires_in"),
    ({"expires_in": "9999d"}, "expires_in"),
    ({"extra": 1}, "extra"),
]


def test_what_can_be_no_token_is_refused_by_field(world, client, problem, subtests):
    for fields, named in INVALID_TOKENS:
        with subtests.test(fields=fields):
            assert named in problem(make(client, **fields), 422, "invalid")
            assert world.tokens.list() == []


def test_a_token_expires_unless_it_is_said_that_it_never_does(client):
    assert make(client).json()["about"]["expires_at"].startswith("2026-04-01")
    assert make(client, name="b", expires_in=None).json()["about"]["expires_at"] is None


def test_nobody_makes_a_mightier_token(world, problem):
    admin = world.holder("admin", ["m", "books"], expires_at=NOW + timedelta(days=1))
    assert make(admin, role="admin", recommenders=["m"], expires_in="1h").status_code == 201
    mightier = (
        {"recommenders": None, "expires_in": "1h"},
        {"recommenders": ["films"], "expires_in": "1h"},
        {"recommenders": ["m"], "expires_in": "2d"},
        {"recommenders": ["m"], "expires_in": None},
    )
    for fields in mightier:
        problem(make(admin, name="more", **fields), 403, "forbidden")
    assert len(world.tokens.list()) == 2


def test_no_role_grants_more_than_it_includes(subtests):
    for role in Role:
        principal = Token("t1", "holder", "", role, None, NOW, "owner").principal
        for wanted in Role:
            with subtests.test(role=role, wanted=wanted):
                assert may_grant(principal, wanted, None, None) == (access.INCLUDES[wanted] <= access.INCLUDES[role])


def test_a_scoped_admin_manages_what_lies_within_its_scope(world, client, problem):
    inside = make(client, name="inside", recommenders=["m"]).json()["about"]["id"]
    across = make(client, name="across", recommenders=["m", "films"]).json()["about"]["id"]
    everywhere = make(client, name="everywhere").json()["about"]["id"]
    admin = world.holder("admin", ["m", "books"])
    assert {token["name"] for token in admin.get("/v1/tokens").json()["items"]} == {"inside", "holder-1"}  # its own, too
    for id in (across, everywhere):
        said = problem(admin.delete(f"/v1/tokens/{id}"), 404, "not-found")
        assert said == f"no token is called '{id}'"
        assert world.tokens.get(id).revoked_at is None
    assert admin.delete(f"/v1/tokens/{inside}").status_code == 200


def test_tokens_come_page_by_page(client):
    for name in ("a", "b", "c"):
        make(client, name=name)
    first = client.get("/v1/tokens?limit=2").json()
    assert len(first["items"]) == 2
    rest = client.get(f"/v1/tokens?limit=2&cursor={first['next']}").json()
    assert {one["name"] for one in first["items"] + rest["items"]} == {"a", "b", "c"}
    assert rest["next"] is None
