"""Authentication: identifies the caller before anything else. Only health is open; unknown paths need a token too."""

from __future__ import annotations

import hmac
import logging
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.access import Caller
from services.api.problems import problem, refused
from services.api.rate_limits import RateLimits, TooFast
from services.api.token_cache import TokenCache
from shared.domain.access import OWNER, Principal, digest, token_id
from shared.domain.errors import EyasError, NotFound
from shared.ports import Clock, TokenStore
from shared.telemetry import metrics

log = logging.getLogger(__name__)

OPEN = frozenset({"/healthz", "/readyz"})
_LONGEST = 4096
_ACCEPTED = 10_000
_NONE = "a token is required: send 'Authorization: Bearer TOKEN'; the first token is in the file 'token' of the platform's home"
_WRONG = "unknown token: send 'Authorization: Bearer TOKEN' with a valid token"
_UNKNOWABLE = "the token cannot be checked now; see the platform's log"
"""For unknown callers: doesn't say where the database is."""


class AuthRefusal(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Auth:
    """Middleware that runs before a body is read or a route is looked up.

    Each request looks its token up, so a revoked token is refused at the next request, on every replica. `TokenCache` says what a client's
    token may do while the store is unavailable.
    """

    def __init__(self, app: ASGIApp, bootstrap: str, tokens: TokenStore, clock: Clock, limits: RateLimits) -> None:
        if not bootstrap.strip():
            raise ValueError("the API needs a token that is not empty")
        self._app = app
        self._bootstrap = digest(bootstrap.strip())
        self._tokens = TokenCache(tokens, clock)
        self._clock = clock
        self._limits = limits
        self._accepted: dict[str, None] = {}
        """Digests of valid tokens, the newest last. Their lookups are not limited."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            headers = Headers(scope=scope).getlist("authorization")
            address = (scope.get("client") or ("",))[0]
            try:
                principal = await self._principal(headers, address)
            except AuthRefusal as refusal:
                metrics.REFUSALS.labels(refusal.reason).inc()
                header = "Bearer" if refusal.reason == "missing" else 'Bearer error="invalid_token"'
                await problem("unauthenticated", 401, str(refusal), {"WWW-Authenticate": header})(scope, receive, send)
                return
            except TooFast as error:
                await refused(scope["method"], scope["path"], error)(scope, receive, send)
                return
            except EyasError as error:
                log.log(logging.DEBUG if error.status == 503 else logging.WARNING, "token: lookup failed error=%s", error)
                later = {"Retry-After": "1"} if error.status == 503 else None
                await problem(error.kind, error.status, _UNKNOWABLE, later)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = Caller(principal, partial(self._principal, headers, address))
        await self._app(scope, receive, send)

    async def _principal(self, headers: list[str], address: str) -> Principal:
        if not headers:
            raise AuthRefusal("missing", _NONE)
        scheme, _, text = headers[0].partition(" ")
        text = text.strip()
        if len(headers) > 1 or scheme.lower() != "bearer" or not text:
            raise AuthRefusal("malformed", _NONE)
        if len(text) > _LONGEST or not text.isascii():
            raise AuthRefusal("malformed", _WRONG)
        token_digest = digest(text)
        if hmac.compare_digest(token_digest, self._bootstrap):
            return OWNER
        id = token_id(text)
        if id is None:
            raise AuthRefusal("unknown", _WRONG)
        if token_digest not in self._accepted:
            self._limits.check_failures(address)
        try:
            principal = await run_in_threadpool(self._holder, id, token_digest)
        except AuthRefusal:
            self._accepted.pop(token_digest, None)
            self._limits.count_failure(address)
            raise
        self._accept(token_digest)
        return principal

    def _accept(self, token_digest: str) -> None:
        if token_digest not in self._accepted:
            self._accepted[token_digest] = None
            if len(self._accepted) > _ACCEPTED:
                del self._accepted[next(iter(self._accepted))]

    def _holder(self, id: str, token_digest: str) -> Principal:
        """Returns the token's principal; only the holder learns why a token is no longer valid."""
        try:
            token = self._tokens.get(id)
        except NotFound:
            raise AuthRefusal("unknown", _WRONG) from None
        if not hmac.compare_digest(token_digest, token.digest):
            raise AuthRefusal("unknown", _WRONG)
        refused = token.refusal(self._clock.now())
        if refused is not None:
            raise AuthRefusal(refused.rsplit(" ", 1)[-1], f"this token {refused}: ask an admin for another")
        return token.principal
