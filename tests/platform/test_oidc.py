"""A platform accepts JWTs of a real OpenID Connect provider, and refuses all others with one line each."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.servers.oidc_provider import AUDIENCE, OidcServer, new_key, settings
from tests.servers.platform_process import PlatformProcess, until

pytestmark = pytest.mark.requirement("U-12")

GROUPS = {"admins": ["ml"], "shop": ["shop", "unknown"], "apps": ["apps"], "strangers": ["sales"], "nobody": []}
ROLES = {"ml": {"role": "admin"}, "shop": {"role": "operator", "recommenders": ["films"]}, "apps": {"role": "client"}}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcServer]:
    with OidcServer(tmp_path_factory.mktemp("provider"), GROUPS) as server:
        yield server


@pytest.fixture(scope="module")
def platform(provider: OidcServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("platform")
    (folder / "data").mkdir()
    with PlatformProcess(folder / "home", folder / "data", settings=settings(provider, ROLES)) as running:
        yield running


def ask(platform: PlatformProcess, text: str, path: str = "/v1/whoami") -> httpx.Response:
    return httpx.get(f"{platform.client.base_url}{path}", headers={"Authorization": f"Bearer {text}"}, timeout=20)


def claims(provider: OidcServer, **changes: Any) -> dict[str, Any]:
    now = int(time.time())
    good = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, "groups": ["ml"]} | changes
    return {name: value for name, value in good.items() if value is not None}


def sign(key: RSAKey, content: dict[str, Any], kid: str = "first") -> str:
    return jwt.encode({"alg": "RS256", "kid": kid}, content, key)


def encode(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def compact(algorithm: str, content: Any, signature: Callable[[bytes], bytes]) -> str:
    """A JWT that no library signs."""
    signed = f"{encode(json.dumps({'alg': algorithm, 'kid': 'first'}).encode())}.{encode(json.dumps(content).encode())}"
    return f"{signed}.{encode(signature(signed.encode()))}"


@pytest.mark.parametrize(
    ("client", "role", "recommenders"), [("admins", "admin", None), ("shop", "operator", ["films"]), ("apps", "client", None)]
)
def test_a_jwt_has_the_role_of_its_groups(
    provider: OidcServer, platform: PlatformProcess, client: str, role: str, recommenders: Any
) -> None:
    response = ask(platform, provider.jwt(client))
    assert response.status_code == 200, response.text
    me = response.json()
    assert (me["name"], me["role"], me["recommenders"]) == (client, role, recommenders)
    assert me["token"].startswith("oidc-") and me["expires_at"] is not None


@pytest.mark.parametrize("client", ["strangers", "nobody"])
def test_a_group_without_a_role_is_refused(provider: OidcServer, platform: PlatformProcess, client: str) -> None:
    response = ask(platform, provider.jwt(client))
    assert response.status_code == 403
    assert response.json()["detail"] == f"no group of '{client}' has a role here: ask an admin, who sets roles of groups by EYAS_OIDC_ROLES"


def changed(**changes: Any) -> Any:
    return lambda provider: sign(provider.key, claims(provider, **changes))


REFUSED = {
    "another audience": (lambda provider: provider.jwt("admins", "https://other.example.org"), "is for another audience"),
    "several audiences": (changed(aud=["a", "b"]), "is for another audience"),
    "no audience": (changed(aud=None), "lacks the claims aud"),
    "another issuer": (changed(iss="https://sso.example.org"), "is from another issuer"),
    "no issuer": (changed(iss=None), "lacks the claims iss"),
    "expired": (changed(iat=1_600_000_000, exp=int(time.time()) - 61), "has expired: get another from the provider"),
    "no expiry": (changed(exp=None), "lacks the claims exp"),
    "endless": (changed(exp="never"), "has an invalid claim 'exp'"),
    "not valid yet": (changed(nbf=int(time.time()) + 86_400), "is not valid yet"),
    "from the future": (changed(iat=int(time.time()) + 86_400), "was issued in the future"),
    "no subject": (changed(sub=None), "lacks the claims sub"),
    "unsigned": (
        lambda provider: compact("none", claims(provider), lambda signed: b""),
        "has the algorithm 'none': expected a signature by a public key, such as RS256",
    ),
    "signed with the public key as a secret": (
        lambda provider: compact(
            "HS256", claims(provider), lambda signed: hmac.digest(provider.key.as_pem(private=False), signed, "sha256")
        ),
        "has the algorithm 'HS256': expected a signature by a public key, such as RS256",
    ),
    "unknown key": (
        lambda provider: sign(new_key("other"), claims(provider), kid="other"),
        "is signed with a key that the provider does not publish",
    ),
    "foreign key with a known id": (lambda provider: sign(new_key("first"), claims(provider)), "has a wrong signature"),
    "changed claims": (
        lambda provider: ".".join(
            part if index != 1 else sign(provider.key, claims(provider, groups=["shop"])).split(".")[1]
            for index, part in enumerate(provider.jwt("admins").split("."))
        ),
        "has a wrong signature",
    ),
    "no JSON": (lambda provider: f"{encode(b'[')}.e30.AA", "cannot be read"),
    "no claims": (lambda provider: compact("RS256", "none", lambda signed: b""), "has a wrong signature"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_any_other_jwt_is_refused_in_one_line(provider: OidcServer, platform: PlatformProcess, case: str) -> None:
    made, message = REFUSED[case]
    response = ask(platform, made(provider))
    assert (response.status_code, response.json()["detail"]) == (401, f"this JWT {message}")
    assert response.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


def test_clocks_may_differ_by_a_minute(provider: OidcServer, platform: PlatformProcess) -> None:
    now = int(time.time())
    for times in ({"exp": now - 30, "iat": now - 300}, {"iat": now + 30}, {"nbf": now + 30}):
        assert ask(platform, sign(provider.key, claims(provider, **times))).status_code == 200


def test_writes_are_audited_with_the_name_and_the_id_of_the_identity(provider: OidcServer, platform: PlatformProcess) -> None:
    text = sign(provider.key, claims(provider, email="ada@example.org"))
    me = ask(platform, text).json()
    headers = {"Authorization": f"Bearer {text}"}
    made = httpx.post(f"{platform.client.base_url}/v1/tokens", json={"name": "app", "role": "client"}, headers=headers, timeout=20)
    assert made.status_code == 201, made.text
    entry = platform.get("/v1/audit", limit=1)["items"][0]
    assert (entry["actor"], entry["token"], entry["action"]) == ("ada@example.org", me["token"], "POST /v1/tokens")
    assert text not in platform.log


def test_a_rotated_key_is_accepted_and_the_withdrawn_one_is_not(provider: OidcServer, platform: PlatformProcess) -> None:
    """Runs last: it replaces the provider's key."""
    old = provider.jwt("admins")
    provider.rotate("second")
    new = provider.jwt("admins")
    until("the new key is accepted", lambda: ask(platform, new).status_code == 200, seconds=30)
    response = ask(platform, old)
    assert (response.status_code, response.json()["detail"]) == (401, "this JWT is signed with a key that the provider does not publish")
    provider.stop()
    assert ask(platform, new).status_code == 200, "the keys are used while the provider does not answer"
    assert ask(platform, old).status_code == 401
