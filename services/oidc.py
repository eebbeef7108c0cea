"""OpenID Connect: verifies JWTs of one provider, and signs users in by the authorization code flow with PKCE."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import httpx
from joserfc import errors, jws, jwt
from joserfc.jwk import KeySet

from shared.domain.access import RESERVED
from shared.domain.errors import Unauthenticated, Unavailable
from shared.domain.segments import is_protected
from shared.domain.sessions import Identity
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Signatures with a public key. 'none' and HMAC, whose key would be a secret that the platform shares, are not among them."""
CLOCK_SKEW = 60
"""Seconds by which the clocks of the provider and of this machine may differ."""
FRESH = 300.0
"""Seconds after which the provider's keys are read again, so that a withdrawn key ends."""
USABLE = 24 * 3600.0
"""Seconds for which the keys are used while the provider does not answer."""
PAUSE = 10.0
"""Seconds between two reads: JWTs with unknown keys must not flood the provider."""
_PATIENCE = 5.0
_ACCEPT = {"Accept": "application/json"}
_MOST_GROUPS = 1000
_EXCHANGES = 8
"""Sign-ins whose code is exchanged at the same time: anybody can begin one."""


class _Verifier(jws.JWSRegistry):
    max_header_length = 16 << 10  # some providers send certificates


_VERIFIER = _Verifier(algorithms=list(ALGORITHMS), strict_check_header=False)


@dataclass(frozen=True)
class OidcConfig:
    issuer: str
    audience: str | None
    """Audience of JWTs for the API; None: the API accepts ID tokens of the console's sign-in only."""
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    redirect_url: str = ""
    scopes: str = "openid"
    groups_claim: str = "groups"
    name_claim: str = "email"


@dataclass(frozen=True)
class _Provider:
    """What the provider publishes."""

    metadata: dict[str, Any]
    keys: KeySet
    read_at: float


class OidcProvider:
    """Implements IdentityProvider."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        self._provider: _Provider | None = None
        self._reading = threading.Lock()
        self._exchanges = 0
        self._next_read = 0.0
        self._outages = Outages(log, QUIET)

    def identity(self, text: str, nonce: str | None = None) -> Identity:
        claims = self._verified(text)
        audiences = (self._config.client_id,) if nonce is not None else (self._config.audience, self._config.client_id)
        self._check(claims, [name for name in audiences if name is not None])
        if nonce is not None and claims.get("nonce") != nonce:
            raise _refused("nonce", "belongs to another sign-in: sign in again")
        try:
            expires_at = datetime.fromtimestamp(claims["exp"], UTC)
        except (OverflowError, ValueError, OSError):
            raise _refused("claims", "has an invalid claim 'exp'") from None
        subject = hashlib.sha256(f"{claims['iss']}\n{claims['sub']}".encode()).hexdigest()[:24]
        return Identity(f"oidc-{subject}", self._name(claims), self._groups(claims), expires_at)

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self._config.redirect_url,
            "scope": self._config.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint: str = self._current().metadata["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def exchange(self, code: str, verifier: str) -> str:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._config.redirect_url, "code_verifier": verifier}
        client_id, secret = self._config.client_id or "", self._config.client_secret
        auth = httpx.BasicAuth(*(urlencode({"": part})[1:] for part in (client_id, secret))) if secret else None
        provider = self._provider  # read before, for the address of the sign-in: this method must not wait for a read
        if provider is None:
            raise Unavailable("the identity provider does not answer: try again later")
        if self._exchanges >= _EXCHANGES:
            raise Unavailable("too many sign-ins at the same time: try again later")
        self._exchanges += 1
        try:
            async with httpx.AsyncClient(timeout=_PATIENCE, headers=_ACCEPT, auth=auth) as client:
                data = form if auth else form | {"client_id": client_id}
                answer = _body(await client.post(provider.metadata["token_endpoint"], data=data), {200, 400, 401})
        except httpx.HTTPError as error:
            raise _away(error) from None
        finally:
            self._exchanges -= 1
        text = answer.get("id_token")
        if not isinstance(text, str):
            fault = re.sub(r"[^a-z_]", "", str(answer.get("error", "no ID token"))[:60])
            log.warning("sign-in: provider refused the code error=%s", fault)
            raise Unauthenticated("code", f"the provider refused the sign-in ({fault or 'no ID token'}): sign in again")
        return text

    def _verified(self, text: str) -> dict[str, Any]:
        """Checks algorithm and signature; returns the claims."""
        try:
            header = jws.extract_compact(text.encode(), registry=_VERIFIER).headers()
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                raise _refused(
                    "algorithm", f"has the algorithm {str(algorithm)[:20]!r}: expected a signature by a public key, such as RS256"
                )
            keys = self._keys(header.get("kid"))
            return dict(jwt.decode(text, keys, registry=_VERIFIER).claims)
        except errors.InvalidKeyIdError:
            raise _refused("key", "is signed with a key that the provider does not publish") from None
        except errors.BadSignatureError:
            raise _refused("signature", "has a wrong signature") from None
        except (errors.JoseError, ValueError, TypeError, AttributeError, KeyError):  # a header may have any JSON
            raise _refused("malformed", "cannot be read") from None

    def _check(self, claims: dict[str, Any], audiences: list[str]) -> None:
        options: dict[str, Any] = {
            "iss": {"essential": True, "value": self._config.issuer},
            "aud": {"essential": True, "values": audiences},
            "exp": {"essential": True},
            "sub": {"essential": True},
        }
        try:
            jwt.JWTClaimsRegistry(leeway=CLOCK_SKEW, **options).validate(claims)
        except errors.ExpiredTokenError:
            raise _refused("expired", "has expired: get another from the provider") from None
        except errors.MissingClaimError as error:
            raise _refused("claims", f"lacks the claims {error.claim}") from None
        except errors.InvalidClaimError as error:
            raise _refused(*_CLAIMS.get(error.claim, ("claims", f"has an invalid claim '{error.claim}'"))) from None

    def _name(self, claims: dict[str, Any]) -> str:
        """Returns a name for histories: the configured claim, else the subject."""
        text = claims.get(self._config.name_claim) or claims.get("preferred_username") or claims["sub"]
        name = re.sub(r"[^\w.@+-]", "_", str(text))[:60]
        return f"oidc-{name}" if name in RESERVED else name

    def _groups(self, claims: dict[str, Any]) -> frozenset[str]:
        value = claims.get(self._config.groups_claim)
        groups = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return frozenset(group for group in groups[:_MOST_GROUPS] if isinstance(group, str))

    def refresh(self, at_once: bool = False) -> None:
        """Reads the provider's addresses and keys if they are older than FRESH, or `at_once`. At most one read per PAUSE; never waits for
        a read of another thread."""
        now = time.monotonic()
        due = at_once or self._provider is None or now - self._provider.read_at > FRESH
        if not due or now < self._next_read or not self._reading.acquire(blocking=False):
            return
        try:
            self._next_read = now + PAUSE
            self._provider = self._read()
            self._outages.succeed("", "identity provider: recovered")
        except Unavailable as error:
            self._outages.fail("", "identity provider: not read error=%s", str(error), level=logging.WARNING)
        finally:
            self._reading.release()

    def _keys(self, kid: str | None) -> KeySet:
        if kid is not None and all(key.kid != kid for key in self._current().keys):
            self.refresh(at_once=True)
        return self._current().keys

    def _current(self) -> _Provider:
        if self._provider is None:
            self.refresh()
        provider = self._provider
        if provider is None or time.monotonic() - provider.read_at > USABLE:
            raise Unavailable("the identity provider does not answer: try again later")
        return provider

    def _read(self) -> _Provider:
        metadata = self._request(f"{self._config.issuer.rstrip('/')}/.well-known/openid-configuration")
        if metadata.get("issuer") != self._config.issuer:
            raise Unavailable(f"the provider calls itself {str(metadata.get('issuer'))[:200]!r}: EYAS_OIDC_ISSUER is another")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_protected(str(metadata.get(name, ""))):
                raise Unavailable(f"the provider's {name} is not an https address")
        keys = _keys_of(self._request(metadata["jwks_uri"]))
        return _Provider(metadata, keys, time.monotonic())

    def _request(self, url: str) -> dict[str, Any]:
        try:
            return _body(httpx.get(url, timeout=_PATIENCE, headers=_ACCEPT), {200})
        except httpx.HTTPError as error:
            raise _away(error) from None


def _body(answer: httpx.Response, statuses: set[int]) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.status_code not in statuses or not isinstance(body, dict):
        raise Unavailable(f"the identity provider answers with status {answer.status_code} in place of JSON with {min(statuses)}")
    return body


def _away(error: httpx.HTTPError) -> Unavailable:
    return Unavailable(f"the identity provider does not answer: {type(error).__name__}")


def _keys_of(document: dict[str, Any]) -> KeySet:
    """Skips keys that cannot verify signatures here, and secrets."""
    keys: list[Any] = []
    listed = document.get("keys")
    for data in listed if isinstance(listed, list) else []:
        try:
            keys += [key for key in KeySet.import_key_set({"keys": [data]}) if key.key_type != "oct"]
        except Exception as error:  # the library raises errors of several kinds for keys of other kinds
            log.debug("identity provider: key is not usable error=%s", type(error).__name__)
    if not keys:
        raise Unavailable("the provider's keys cannot be read")
    return KeySet(keys)


_CLAIMS = {
    "aud": ("audience", "is for another audience"),
    "iss": ("issuer", "is from another issuer"),
    "nbf": ("early", "is not valid yet"),
    "iat": ("early", "was issued in the future"),
}


def _refused(reason: str, message: str) -> Unauthenticated:
    return Unauthenticated(reason, f"this JWT {message}")
