"""ASGI app of the control plane: pages of the console, and the API under `/v1` without overhead."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.console import assets, pages
from services.console.api import HERE
from services.console.render import PageFault, fault
from shared.ports import IdentityProvider

log = logging.getLogger(__name__)

_LONGEST = 8192
"""Longest path and query in characters."""
_API = ("/v1/", "/healthz", "/readyz", "/openapi.json")

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Site:
    """API with console pages. Paths of the API go to the API directly."""

    def __init__(
        self, api: ASGIApp, online: str | None = HERE, image_hosts: Sequence[str] = (), provider: IdentityProvider | None = None
    ) -> None:
        """`online` is the gateway for recommendations; pictures of items may come from `image_hosts`; users sign in at the `provider`."""
        self._api = api
        self._online = online
        self._provider = provider
        self._image_hosts = frozenset(image_hosts)
        sources = " ".join(["img-src 'self'", *(f"https://{host}" for host in sorted(self._image_hosts))])
        headers = HEADERS | {"Content-Security-Policy": _POLICY.replace("img-src 'self'", sources)}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._pages = Router([*assets.routes(), *pages.routes()], redirect_slashes=False, default=_nothing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_API):
            await self._api(scope, receive, send)
            return

        async def api(inner_scope: Scope, receive: Receive, send: Send) -> None:
            """Keeps the address of the browser, by which the API limits unknown tokens."""
            await self._api({**inner_scope, "client": scope.get("client")}, receive, send)

        scope.setdefault("state", {}).update(api=api, online=self._online, image_hosts=self._image_hosts, provider=self._provider)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                header_names = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in self._headers if header[0] not in header_names)]
            await send(message)

        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await guarded(message)

        if len(scope["path"]) + len(scope["query_string"]) > _LONGEST or not scope["query_string"].isascii():
            scope = {**scope, "query_string": b""}  # an invalid query could break the error page
            await fault(Request(scope), PageFault(400, "Invalid address", "The address is too long or not valid."))(scope, receive, guarded)
            return
        try:
            await self._pages(scope, receive, watched)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("page: failed path=%s", scope["path"])
            if begun:
                raise
            await fault(Request(scope), PageFault(500, "Internal error", "See the platform's log."))(scope, receive, guarded)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    problem = PageFault(404, "Not found", f"There is no page at {scope['path'][:200]}.")
    await fault(Request(scope), problem)(scope, receive, send)
