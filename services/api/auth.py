"""Authentication: identifies the caller before anything else. Only health is open; unknown paths need a token too."""

from __future__ import annotations

import logging
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.access import Caller
from services.api.credentials import UNKNOWN, Credentials
from services.api.problems import problem, refused
from services.api.rate_limits import RateLimits, TooFast
from shared.domain.access import OWNER, Principal, digest
from shared.domain.errors import EyasError, Forbidden, Unauthenticated
from shared.telemetry import metrics

log = logging.getLogger(__name__)

OPEN = frozenset({"/healthz", "/readyz"})
_LONGEST = 16 << 10
"""Characters of a credential: JWTs may list hundreds of groups."""
_ACCEPTED = 10_000
_NONE = "a token is required: send 'Authorization: Bearer TOKEN'; the first token is in the file 'token' of the platform's home"
_UNKNOWABLE = "the token cannot be checked now; see the platform's log"
"""For unknown callers: doesn't say where the database is."""


class Auth:
    """Middleware that runs before a body is read or a route is looked up.

    Each request checks its credential, so a revoked token is refused at the next request, on every replica. `TokenCache` says what a
    client's token may do while the store is unavailable.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials, limits: RateLimits) -> None:
        self._app = app
        self._credentials = credentials
        self._limits = limits
        self._accepted: dict[str, None] = {}
        """Digests of valid credentials, the newest last. Their lookups are not limited."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            headers = Headers(scope=scope).getlist("authorization")
            address = (scope.get("client") or ("",))[0]
            try:
                principal = await self._principal(headers, address)
            except Unauthenticated as refusal:
                metrics.REFUSALS.labels(refusal.reason).inc()
                header = "Bearer" if refusal.reason == "missing" else 'Bearer error="invalid_token"'
                await problem(refusal.kind, refusal.status, str(refusal), {"WWW-Authenticate": header})(scope, receive, send)
                return
            except Forbidden as refusal:
                metrics.REFUSALS.labels("no role").inc()
                await problem(refusal.kind, refusal.status, str(refusal))(scope, receive, send)
                return
            except TooFast as error:
                await refused(scope["method"], scope["path"], error)(scope, receive, send)
                return
            except EyasError as error:
                log.log(logging.DEBUG if error.status == 503 else logging.WARNING, "token: lookup failed error=%s", error)
                later = {"Retry-After": "1"} if error.status == 503 else None
                await problem(error.kind, error.status, _UNKNOWABLE, later)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = Caller(principal, partial(self._principal, headers, address, again=True))
        await self._app(scope, receive, send)

    async def _principal(self, headers: list[str], address: str, again: bool = False) -> Principal:
        text = bearer(headers)
        credential_digest = digest(text)
        if self._credentials.is_bootstrap(credential_digest):
            return OWNER
        if not self._credentials.can_be_valid(text):
            raise Unauthenticated("unknown", UNKNOWN)
        if credential_digest not in self._accepted:
            self._limits.check_failures(address)
        try:
            principal = await run_in_threadpool(self._credentials.principal, text, again)
        except (Unauthenticated, Forbidden):
            self._accepted.pop(credential_digest, None)
            self._limits.count_failure(address)
            raise
        self._accept(credential_digest)
        return principal

    def _accept(self, credential_digest: str) -> None:
        if credential_digest not in self._accepted:
            self._accepted[credential_digest] = None
            if len(self._accepted) > _ACCEPTED:
                del self._accepted[next(iter(self._accepted))]


def bearer(headers: list[str]) -> str:
    """Returns the credential of the Authorization headers. Raises Unauthenticated if there is not exactly one."""
    if not headers:
        raise Unauthenticated("missing", _NONE)
    scheme, _, text = headers[0].partition(" ")
    text = text.strip()
    if len(headers) > 1 or scheme.lower() != "bearer" or not text:
        raise Unauthenticated("malformed", _NONE)
    if len(text) > _LONGEST or not text.isascii():
        raise Unauthenticated("malformed", UNKNOWN)
    return text
