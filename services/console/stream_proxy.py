"""Proxies a stream of the API with the user's token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class StreamProxy(Response):
    """`path` is made by `at`; `query` is encoded."""

    def __init__(self, request: Request, token: str, path: str, query: str = "") -> None:
        super().__init__()
        self._api: ASGIApp = request.state.api
        self._path, self._query = path, query
        last = request.headers.get("last-event-id")
        self._sent = [(b"host", request.headers.get("host", "").encode("latin-1")), (b"authorization", f"Bearer {token}".encode())]
        if last is not None:
            self._sent.append((b"last-event-id", last.encode("latin-1")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base_scope = {name: scope[name] for name in ("type", "asgi", "http_version", "scheme", "client", "server") if name in scope}
        inner_scope = {
            **base_scope,
            "method": "GET",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": self._query.encode(),
            "root_path": "",
            "headers": self._sent,
            "state": {},
        }
        await self._api(inner_scope, receive, send)
