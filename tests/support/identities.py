"""JWTs of a provider without a server: its documents are here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey
from joserfc.jws import JWSRegistry

from services.oidc import OidcConfig, OidcProvider
from shared.domain.access import Role, RoleRule
from shared.domain.errors import Unavailable

ISSUER, AUDIENCE = "https://sso.example.org", "eyas"
CONFIG = OidcConfig(ISSUER, AUDIENCE, "console", None, "https://eyas.example.org/login/callback")
SCOPES = (None, ("books",), ("books", "m"))


class _Signer(JWSRegistry):
    max_header_length = 10_000


_SIGNER = _Signer(algorithms=["ES256"], strict_check_header=False)
RULES = tuple(RoleRule(f"{role}-{scope}", role, None if scope is None else frozenset(scope)) for role in Role for scope in SCOPES)
"""A group for each role and each of these scopes."""


@cache
def key(name: str = "first") -> ECKey:
    return ECKey.generate_key("P-256", {"kid": name, "use": "sig", "alg": "ES256"})


class Provider(OidcProvider):
    """Its documents may be changed; `asked` has the addresses that were read."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.documents: dict[str, Any] = {
            f"{ISSUER}/.well-known/openid-configuration": {
                "issuer": ISSUER,
                "authorization_endpoint": f"{ISSUER}/auth",
                "token_endpoint": f"{ISSUER}/token",
                "jwks_uri": f"{ISSUER}/keys",
            },
            f"{ISSUER}/keys": {"keys": [key().as_dict(private=False)]},
        }
        self.asked: list[str] = []

    def _request(self, url: str) -> dict[str, Any]:
        self.asked.append(url)
        document = self.documents.get(url)
        if document is None:
            raise Unavailable("the identity provider does not answer: ConnectError")
        return dict(document)


def jwt_of(groups: Any, signed_with: ECKey | None = None, header: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> str:
    signing_key, now = signed_with or key(), int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, "groups": groups} | changes
    return jwt.encode({"alg": "ES256", "kid": signing_key.kid} | dict(header), claims, signing_key, registry=_SIGNER)


def jwt_with(role: Role, recommenders: list[str] | None) -> str:
    scope = None if recommenders is None else tuple(sorted(recommenders))
    return jwt_of([f"{role}-{scope}"])
