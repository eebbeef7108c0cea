"""Who may come in: the holder of the token. Everything but health is closed, what doesn't exist included."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.problems import problem

OPEN = frozenset({"/healthz", "/readyz"})


class Auth:
    """Asks before anything else is done with a request: no body is read, no route is looked up."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        if not token.strip():
            raise ValueError("the API needs a token that is not empty")
        self._app = app
        self._token = token.strip().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN and not self._holds(Headers(scope=scope).get("authorization", "")):
            said = "this needs the token: send 'Authorization: Bearer TOKEN'; the token stands in the file 'token' of the platform's home"
            await problem("unauthenticated", 401, said, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _holds(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
