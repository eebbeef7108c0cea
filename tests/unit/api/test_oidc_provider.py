"""The provider's keys are cached, rotated and survive its outages; its identities get roles, names and sessions."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from joserfc.jwk import ECKey, OctKey

from services import oidc
from services.api.rate_limits import RateLimit, RateLimits
from services.oidc import USABLE
from shared.domain.access import Role, RoleRule, granted
from shared.domain.errors import Unauthenticated, Unavailable
from tests.support.api_world import Client, World
from tests.support.identities import ISSUER, RULES, Provider, jwt_of, jwt_with, key

pytestmark = pytest.mark.requirement("U-12")

KEYS = f"{ISSUER}/keys"


class Monotonic:
    def __init__(self, monkeypatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(oidc.time, "monotonic", lambda: self.seconds)


@pytest.fixture
def monotonic(monkeypatch):
    return Monotonic(monkeypatch)


def holder(world: World, text: str) -> Client:
    return Client(world.app, headers={"Authorization": f"Bearer {text}"})


def world_with(provider: Provider, rules=RULES, **fields) -> World:
    return World(provider=provider, role_rules=rules, **fields)


def publish(provider: Provider, *keys: ECKey | OctKey) -> None:
    provider.documents[KEYS] = {"keys": [each.as_dict(private=isinstance(each, OctKey)) for each in keys]}


def test_keys_are_read_once_and_again_when_they_are_old(monotonic):
    provider = Provider()
    for _ in range(5):
        provider.identity(jwt_of(["ml"]))
    assert provider.asked.count(KEYS) == 1
    publish(provider, key("second"))
    monotonic.seconds += oidc.FRESH + 1
    provider.refresh()
    with pytest.raises(Unauthenticated, match="a key that the provider does not publish"):
        provider.identity(jwt_of(["ml"]))
    assert provider.identity(jwt_of(["ml"], key("second"))).groups == {"ml"}


def test_a_new_key_is_read_at_once_and_unknown_keys_do_not_flood_the_provider(monotonic):
    provider = Provider()
    provider.identity(jwt_of([]))
    publish(provider, key(), key("second"))
    monotonic.seconds += oidc.PAUSE
    assert provider.identity(jwt_of([], key("second")))
    for number in range(100):
        monotonic.seconds += 0.1
        with pytest.raises(Unauthenticated):
            provider.identity(jwt_of([], key(f"unknown-{number % 3}")))
    assert provider.asked.count(KEYS) <= 3


def test_an_outage_refuses_nobody_whom_known_keys_prove_and_ends_after_a_day(monotonic, caplog):
    provider = Provider()
    text = jwt_of(["ml"])
    provider.identity(text)
    documents, provider.documents = provider.documents, {}
    for _ in range(20):
        monotonic.seconds += 3600
        provider.refresh()
        assert provider.identity(text)
    monotonic.seconds += USABLE
    with pytest.raises(Unavailable, match="does not answer"):
        provider.identity(text)
    provider.documents = documents
    monotonic.seconds += oidc.PAUSE
    provider.refresh()
    assert provider.identity(text)
    assert "identity provider: not read" in caplog.text


def test_without_the_provider_tokens_are_valid_and_jwts_are_answered_later(problem):
    provider = Provider()
    provider.documents = {}
    world = world_with(provider)
    response = holder(world, jwt_with(Role.ADMIN, None)).get("/v1/whoami")
    problem(response, 503, "unavailable")
    assert response.headers["Retry-After"] == "1" and ISSUER not in response.text
    assert world.client.get("/v1/whoami").status_code == 200


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"issuer": "https://other.example.org"}, "the provider calls itself 'https://other.example.org'"),
        ({"jwks_uri": "http://sso.example.org/keys"}, "the provider's jwks_uri is not an https address"),
        ({"token_endpoint": "file:///etc/passwd"}, "the provider's token_endpoint is not an https address"),
        ({"authorization_endpoint": None}, "the provider's authorization_endpoint is not an https address"),
    ],
)
def test_a_provider_that_publishes_something_else_is_not_used(caplog, changes, message):
    provider = Provider()
    provider.documents[f"{ISSUER}/.well-known/openid-configuration"] |= changes
    with pytest.raises(Unavailable):
        provider.identity(jwt_of([]))
    assert message in caplog.text


@pytest.mark.parametrize("keys", [{}, {"keys": 1}, {"keys": [{"kty": "RSA"}]}, {"keys": []}])
def test_keys_that_cannot_be_read_are_named_in_the_log(caplog, keys):
    provider = Provider()
    provider.documents[KEYS] = keys
    with pytest.raises(Unavailable):
        provider.identity(jwt_of([]))
    assert "the provider's keys cannot be read" in caplog.text


@pytest.mark.parametrize(
    "other", [{"kty": "EC", "crv": "P-192", "x": "AA", "y": "AA"}, {"kty": "OKP", "crv": "X9", "x": "AA"}, {"use": "sig"}, 7, {"kty": "PQ"}]
)
def test_keys_of_another_kind_are_skipped(other):
    provider = Provider()
    provider.documents[KEYS]["keys"].insert(0, other)
    assert provider.identity(jwt_of(["ml"])).groups == {"ml"}


@pytest.mark.parametrize("header", [{"x5c": ["A" * 1500]}, {"pi.atm": "x"}, {"nonce": "x"}, {"typ": "at+jwt"}])
def test_other_parameters_of_a_header_are_ignored(header):
    assert Provider().identity(jwt_of(["ml"], header=header)).groups == {"ml"}


HEADERS = [
    {"alg": "ES256", "crit": 1},
    {"alg": 1},
    {"alg": ["ES256"]},
    {"alg": "ES256", "kid": []},
    {"alg": "ES256", "crit": ["x"]},
    {},
    [],
    1,
]


@pytest.mark.parametrize("header", HEADERS)
def test_any_header_is_refused_or_read_in_one_line(header, problem):
    parts = (json.dumps(header), '{"sub": 1}', "signature")
    text = ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)
    detail = problem(holder(world_with(Provider()), text).get("/v1/whoami"), 401, "unauthenticated")
    assert detail.startswith("this JWT ") and "\n" not in detail


def test_an_expiry_beyond_all_calendars_is_refused():
    with pytest.raises(Unauthenticated, match="has an invalid claim 'exp'"):
        Provider().identity(jwt_of([], exp=1e300))


def test_a_published_secret_signs_nothing():
    provider = Provider()
    secret = OctKey.generate_key(256, {"kid": "secret", "alg": "HS256"})
    publish(provider, key(), secret)
    text = oidc.jwt.encode({"alg": "HS256", "kid": "secret"}, {"iss": ISSUER, "aud": "eyas", "sub": "x"}, secret)
    with pytest.raises(Unauthenticated, match="has the algorithm 'HS256'"):
        provider.identity(text)


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"email": "ada@example.org"}, "ada@example.org"),
        ({"email": ""}, "ada"),
        ({"preferred_username": "al"}, "al"),
        ({"email": "owner"}, "oidc-owner"),
        ({"email": "a\nb <script>\0"}, "a_b__script__"),
        ({"email": "x" * 500}, "x" * 60),
        ({"email": ["a", "b"]}, "__a____b__"),
    ],
)
def test_names_are_safe_for_logs_and_pages_and_nobody_takes_a_reserved_one(claims, name):
    assert Provider().identity(jwt_of([], **claims)).name == name


def test_subjects_of_equal_names_have_different_ids():
    provider = Provider()
    ids = {provider.identity(jwt_of([], sub=sub, email="same")).subject_id for sub in ("a", "b", "a")}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("groups", "result"), [(["ml"], {"ml"}), ("ml", {"ml"}), (None, set()), ({"ml": 1}, set()), ([1, "ml", None, ["x"]], {"ml"})]
)
def test_groups_are_texts(groups, result):
    assert Provider().identity(jwt_of(groups)).groups == result


def test_of_several_groups_the_highest_role_counts_with_all_its_scopes():
    films, books = frozenset({"films"}), frozenset({"books"})
    rules = (
        RoleRule("a", Role.VIEWER),
        RoleRule("b", Role.OPERATOR, films),
        RoleRule("c", Role.OPERATOR, books),
        RoleRule("d", Role.CLIENT),
        RoleRule("e", Role.ADMIN, films),
        RoleRule("f", Role.ADMIN),
    )
    assert granted(rules, {"a", "d"}) == (Role.VIEWER, None)
    assert granted(rules, {"a", "b"}) == (Role.OPERATOR, films)
    assert granted(rules, {"a", "b", "c"}) == (Role.OPERATOR, films | books)
    assert granted(rules, {"b", "e"}) == (Role.ADMIN, films)
    assert granted(rules, {"e", "f"}) == (Role.ADMIN, None)
    assert granted(rules, {"x"}) is None


def test_a_session_of_an_identity_needs_the_nonce_of_its_sign_in(problem):
    world = world_with(Provider())
    id_token = jwt_of(["admin-None"], aud="console", nonce="right")
    client = holder(world, id_token)
    assert "belongs to another sign-in" in problem(client.post("/v1/sessions", json={"nonce": "wrong"}), 401, "unauthenticated")
    access_token = holder(world, jwt_of(["admin-None"], nonce="right"))
    assert "another audience" in problem(access_token.post("/v1/sessions", json={"nonce": "right"}), 401, "unauthenticated")
    made = client.post("/v1/sessions", json={"nonce": "right"}).json()
    me = holder(world, made["session"]).get("/v1/whoami").json()
    assert (me["role"], me["name"], me["expires_at"]) == ("admin", "ada", made["expires_at"])


def test_a_session_of_another_jwt_ends_with_the_jwt():
    world = world_with(Provider())
    world.clock.now = lambda: datetime.now(UTC)
    made = holder(world, jwt_of(["admin-None"])).post("/v1/sessions").json()
    assert datetime.fromisoformat(made["expires_at"]) <= datetime.now(UTC) + timedelta(seconds=300)


def test_an_admin_ends_the_sessions_of_an_identity():
    world = world_with(Provider())
    ada, bob = (holder(world, jwt_of(["viewer-None"], sub=sub)) for sub in ("ada", "bob"))
    texts = [client.post("/v1/sessions").json()["session"] for client in (ada, ada, bob)]
    subject = ada.get("/v1/whoami").json()["token"]
    assert world.client.delete(f"/v1/sessions/{subject}").json() == {"ended": 2}
    assert [holder(world, text).get("/v1/whoami").status_code for text in texts] == [401, 401, 200]


def test_a_first_token_that_looks_like_a_jwt_is_a_token():
    world = world_with(Provider(), token="a.b.c")
    assert holder(world, "a.b.c").post("/v1/sessions").status_code == 201


def test_a_group_that_loses_its_role_loses_its_sessions(problem):
    provider = Provider()
    world = world_with(provider)
    text = holder(world, jwt_of(["viewer-None"])).post("/v1/sessions").json()["session"]
    assert holder(world, text).get("/v1/whoami").status_code == 200
    after_restart = world_with(provider, RULES[:1], engine=world.engine)
    assert "no group of 'ada' has a role here" in problem(holder(after_restart, text).get("/v1/whoami"), 403, "forbidden")


def test_an_identity_creates_tokens_that_outlive_its_jwt_but_within_its_role(problem):
    world = world_with(Provider())
    admin = holder(world, jwt_with(Role.ADMIN, ["books"]))
    new = {"name": "app", "role": "client", "recommenders": ["books"], "expires_in": "90d"}
    assert admin.post("/v1/tokens", json=new).status_code == 201
    problem(admin.post("/v1/tokens", json=new | {"name": "other", "recommenders": ["films"]}), 403, "forbidden")


def test_many_sign_ins_at_the_same_time_are_refused_and_delay_nobody(monkeypatch):
    """Anybody can send a code, so exchanges must not take the threads that check credentials."""
    provider, waiting = Provider(), asyncio.Event()
    provider.refresh()

    async def post(*arguments, **fields):
        await waiting.wait()
        return oidc.httpx.Response(400, json={"error": "invalid_grant"})

    monkeypatch.setattr(oidc.httpx.AsyncClient, "post", post)

    async def attack():
        tries = [asyncio.create_task(provider.exchange("code", "verifier")) for _ in range(30)]
        await asyncio.sleep(0)
        waiting.set()
        return await asyncio.gather(*tries, return_exceptions=True)

    outcomes = [str(outcome) for outcome in asyncio.run(attack())]
    assert outcomes.count("the provider refused the sign-in (invalid_grant): sign in again") == 8
    assert outcomes.count("too many sign-ins at the same time: try again later") == 22


def test_jwts_without_a_provider_are_unknown_tokens(problem):
    assert "unknown token" in problem(holder(World(), jwt_of(["admin-None"])).get("/v1/whoami"), 401, "unauthenticated")


def test_a_flood_of_wrong_jwts_is_limited_like_one_of_wrong_tokens():
    world = world_with(Provider(), limits=RateLimits(RateLimit(0, 0, 0, 1)))
    client = holder(world, jwt_of([], key("unknown")))
    assert [client.get("/v1/whoami").status_code for _ in range(12)] == [401] * 10 + [429] * 2
    assert holder(world, jwt_with(Role.ADMIN, None)).get("/v1/whoami").status_code == 429, "nobody can tell it from a wrong one yet"
