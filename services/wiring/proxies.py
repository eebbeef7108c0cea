"""The platform behind TLS proxies: client and scheme of a request from the headers of trusted proxies, and HSTS over https.

`X-Forwarded-For` is read from its end, where each proxy appends its peer: the client is the last address that is not a trusted proxy, so
entries that a client sends itself do not count. `X-Forwarded-Host` and `Forwarded` are ignored: proxies pass `Host` on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_HSTS = (b"strict-transport-security", b"max-age=31536000")


def behind_proxies(app: ASGIApp, proxies: Sequence[str]) -> ASGIApp:
    """Believes `X-Forwarded-Proto` and `X-Forwarded-For` of these addresses and networks. Other peers cannot set client or scheme."""
    if not proxies:
        return app
    return cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, StrictTransport(app)), list(proxies)))


class StrictTransport:
    """Adds HSTS to answers over https: browsers then use https alone for a year, for this host and not for its subdomains."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def strict_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _HSTS]
            await send(message)

        await self._app(scope, receive, strict_send if scope.get("scheme") == "https" else send)
