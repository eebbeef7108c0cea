"""Who may go on when nobody can look a token up: a client that was known not long ago, and nobody else."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from services.api import token_cache
from services.api.token_cache import REMEMBERED, TokenCache
from shared.domain.access import Role, Token
from shared.domain.errors import NotFound, Unavailable, no_such

pytestmark = pytest.mark.requirement("C-01")

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def token(id: str, role: Role = Role.CLIENT) -> Token:
    return Token(id, id, "", role, None, NOW, "ada")


class Tokens:
    """Implements `get` of TokenStore. May be away, or hang; counts the calls."""

    def __init__(self) -> None:
        self.rows = {role.value: token(role.value, role) for role in Role}
        self.away = False
        self.hangs: threading.Event | None = None
        self.asked = 0

    def get(self, id: str) -> Token:
        self.asked += 1
        if self.hangs is not None:
            self.hangs.wait(30)
        if self.away:
            raise Unavailable("nobody is there")
        if id not in self.rows:
            raise no_such("token", id)
        return self.rows[id]


class Clock:
    time = NOW

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def tokens():
    made = Tokens()
    yield made
    if made.hangs is not None:
        made.hangs.set()


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.CLIENT])
def test_nobody_but_a_client_is_remembered(tokens, role):
    cache = TokenCache(tokens, Clock())
    assert cache.get(role.value).role is role
    tokens.away = True
    with pytest.raises(Unavailable):
        cache.get(role.value)


def test_a_client_that_was_known_goes_on_for_an_hour_and_no_longer(tokens):
    clock = Clock()
    cache = TokenCache(tokens, clock, pause=0)
    cache.get("client")
    tokens.away = True
    clock.time = NOW + REMEMBERED
    assert cache.get("client").id == "client"
    clock.time += timedelta(microseconds=1)
    with pytest.raises(Unavailable):
        cache.get("client")


def test_a_client_that_nobody_has_seen_is_not_let_in(tokens):
    tokens.away = True
    with pytest.raises(Unavailable):
        TokenCache(tokens, Clock()).get("client")


def test_a_lookup_that_says_no_is_believed_at_once(tokens):
    cache = TokenCache(tokens, Clock(), pause=0)
    cache.get("client")
    tokens.rows["client"] = replace(tokens.rows["client"], revoked_at=NOW)
    assert cache.get("client").refusal(NOW) == "was revoked"
    tokens.away = True
    assert cache.get("client").refusal(NOW) == "was revoked"
    tokens.away = False
    del tokens.rows["client"]
    with pytest.raises(NotFound):
        cache.get("client")
    tokens.away = True
    with pytest.raises(Unavailable):
        cache.get("client")


def test_a_store_that_is_away_or_hangs_is_not_asked_by_everybody(tokens, caplog):
    cache = TokenCache(tokens, Clock(), patience=0.01, pause=3600)
    cache.get("client")
    tokens.hangs = threading.Event()
    for _ in range(50):
        assert cache.get("client").id == "client"
    assert tokens.asked == 2
    assert len(caplog.records) == 1


def test_only_so_many_are_remembered_and_the_longest_unseen_go_first(tokens, monkeypatch):
    monkeypatch.setattr(token_cache, "_MOST", 2)
    cache = TokenCache(tokens, Clock(), pause=0)
    for n in range(3):
        tokens.rows[f"c{n}"] = token(f"c{n}")
        cache.get(f"c{n}")
        cache.get("c0")
    tokens.away = True
    assert [cache.get(id).id for id in ("c0", "c2")] == ["c0", "c2"]
    with pytest.raises(Unavailable):
        cache.get("c1")


def test_over_http_a_client_still_gets_recommendations_and_an_admin_is_told_to_come_again(world, monkeypatch):
    client, admin = world.holder("client"), world.holder("admin")

    def ask(who):
        return who.post("/v1/recommend/m", json={"user": 1}).status_code

    def away(id):
        raise Unavailable("the database at db.internal doesn't answer")

    assert [ask(client), ask(admin)] == [200, 200]
    monkeypatch.setattr(world.tokens, "get", away)
    assert [ask(client), ask(admin)] == [200, 503]
