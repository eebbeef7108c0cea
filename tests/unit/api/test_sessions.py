"""Sessions of the console: what they may do, how they are renewed, and when they end."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from shared.domain.access import digest, token_id
from shared.domain.errors import Unauthenticated
from shared.domain.sessions import IDLE, LIFE, OVERLAP, RENEWED_AFTER
from tests.support.api_world import NOW, TOKEN, Client, World

pytestmark = pytest.mark.requirement("U-12")

MINUTE = timedelta(minutes=1)


def at(world: World, moment) -> None:
    world.clock.now = lambda: moment


def start(client) -> str:
    response = client.post("/v1/sessions")
    assert response.status_code == 201 and response.headers["Cache-Control"] == "no-store"
    return response.json()["session"]


def holder(world: World, text: str) -> Client:
    return Client(world.app, headers={"Authorization": f"Bearer {text}"})


def renew(world: World, text: str) -> str | None:
    response = holder(world, text).post("/v1/sessions/current:renew")
    assert response.status_code == 200, response.text
    return response.json()["session"]


def is_valid(world: World, text: str) -> bool:
    return holder(world, text).get("/v1/whoami").status_code == 200


@pytest.mark.parametrize("role", ["client", "viewer", "operator", "admin"])
def test_a_session_has_the_rights_of_its_token(world, role):
    token = world.holder(role, ["m"])
    of_token, of_session = token.get("/v1/whoami").json(), holder(world, start(token)).get("/v1/whoami").json()
    assert of_session.pop("renewable_at") is not None and of_token.pop("renewable_at") is None
    assert of_session == of_token


def test_no_secret_is_stored_and_the_audit_log_names_the_token(world, client):
    text = start(client)
    stored = world.sessions.get(token_id(text))
    assert stored.digest == digest(text) and TOKEN not in str(stored) and text not in str(stored)
    (entry,) = world.audit.list()
    assert (entry.action, entry.token, entry.status) == ("POST /v1/sessions", "bootstrap", 201)
    assert text not in str(entry)


def test_a_session_cannot_prolong_itself(world, client, problem):
    session = holder(world, start(client))
    assert "send a token" in problem(session.post("/v1/sessions"), 422, "invalid")


def test_only_a_session_is_renewed_and_ended(client, problem):
    for method, path in (("POST", "/v1/sessions/current:renew"), ("DELETE", "/v1/sessions/current")):
        assert "not a session" in problem(client.request(method, path), 422, "invalid")


def test_a_session_ends_at_sign_out(world, client, problem):
    text = start(client)
    assert holder(world, text).delete("/v1/sessions/current").status_code == 204
    assert "sign in again" in problem(holder(world, text).get("/v1/whoami"), 401, "unauthenticated")


def test_a_session_ends_with_its_token(world, client, problem):
    token = world.holder("viewer")
    text = start(token)
    client.delete(f"/v1/tokens/{world.tokens.list()[0].id}")
    assert "was revoked" in problem(holder(world, text).get("/v1/whoami"), 401, "unauthenticated")


def test_a_session_of_the_first_token_ends_when_the_token_is_replaced(world, client):
    text = start(client)
    after_restart = World(engine=world.engine, token="another-token")
    assert not is_valid(after_restart, text)
    assert is_valid(World(engine=world.engine), text)


def test_a_session_lives_no_longer_than_its_token(world):
    token = world.holder("viewer", expires_at=NOW + timedelta(hours=2))
    at(world, NOW)
    response = token.post("/v1/sessions").json()
    assert response["expires_at"] == (NOW + timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    text = response["session"]
    at(world, NOW + timedelta(minutes=50))
    text = renew(world, text)
    at(world, NOW + timedelta(minutes=100))
    text = renew(world, text)
    at(world, NOW + timedelta(hours=2))
    assert not is_valid(world, text)


def test_a_session_that_nobody_uses_ends_after_an_hour(world, client):
    at(world, NOW)
    text = start(client)
    at(world, NOW + IDLE - MINUTE)
    assert is_valid(world, text)
    at(world, NOW + IDLE)
    assert not is_valid(world, text)


def test_a_secret_is_renewed_after_a_quarter_of_an_hour_and_then_ends(world, client):
    at(world, NOW)
    text = start(client)
    assert renew(world, text) is None
    at(world, NOW + RENEWED_AFTER)
    renewed = renew(world, text)
    assert renewed[:-32] == text[:-32] and renewed != text
    assert renew(world, text) is None
    assert is_valid(world, text) and is_valid(world, renewed)
    at(world, NOW + RENEWED_AFTER + OVERLAP)
    assert is_valid(world, renewed) and not is_valid(world, text)


def test_a_stream_continues_when_its_session_is_renewed_and_ends_with_it(world, client):
    at(world, NOW)
    text = start(client)
    assert world.credentials.principal(text, again=True).name == "owner"
    at(world, NOW + RENEWED_AFTER)
    renewed = renew(world, text)
    assert is_valid(world, renewed)
    at(world, NOW + RENEWED_AFTER + OVERLAP)
    assert not is_valid(world, text)
    assert world.credentials.principal(text, again=True).name == "owner"
    holder(world, renewed).delete("/v1/sessions/current")
    with pytest.raises(Unauthenticated):
        world.credentials.principal(text, again=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_browser_whose_responses_get_lost_stays_signed_in_for_twelve_hours_and_no_longer(world, client, seed):
    """Requests run at the same time, and half of the responses do not arrive. Nobody else can use a secret that was replaced."""
    chance, moment = random.Random(seed), NOW
    at(world, NOW)
    cookie, replaced = start(client), []
    while moment < NOW + LIFE:
        assert is_valid(world, cookie), moment - NOW
        tabs = [renew(world, cookie) for _ in range(chance.randint(1, 3))]
        assert sum(renewed is not None for renewed in tabs) <= 1, "two tabs would replace each other's secret"
        for renewed in tabs:
            if renewed is not None and chance.random() < 0.5:
                replaced.append((cookie, moment))
                cookie = renewed
                assert is_valid(world, cookie)
        for secret, since in replaced:
            assert is_valid(world, secret) == (moment < since + OVERLAP)
        moment += timedelta(minutes=chance.randint(1, 22))
        at(world, moment)
    assert len(replaced) > 10
    assert not is_valid(world, cookie)
