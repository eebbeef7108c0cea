"""Middleware around every handler: limits the size of a body, and catches unexpected exceptions."""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.problems import problem, unexpected
from shared.domain.ids import new_id
from shared.telemetry import logs, metrics

MAX_BODY = 1 << 20
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
"""Keeps browsers from guessing another content type."""


class BodyLimit:
    """Rejects a body by its announced length, or by the received bytes without one.

    Reads the body here, so that no handler starts on one that is too large, and hands it on in one piece.
    """

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        pieces: list[bytes] = []
        last: Message = {"type": "http.request", "body": b""}
        size = int(announced[:19]) if announced.isdecimal() else 0
        if size <= self._limit:
            size = 0
            while size <= self._limit:
                last = await receive()
                pieces.append(last.get("body", b""))
                size += len(pieces[-1])
                if not last.get("more_body", False):
                    break
        if size > self._limit:
            metrics.LIMITED.labels("body").inc()
            detail = f"the body is larger than {self._limit} bytes: send it in parts"
            await problem("too-large", 413, detail, {"Connection": "close"})(scope, receive, send)
            return

        scope.setdefault("state", {})["size"] = size
        waiting = [{"type": "http.request", "body": b"".join(pieces)} if last["type"] == "http.request" else last]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)


class LastCatch:
    """Outermost middleware. Gives each request an id: its log lines have it, the response has it as X-Request-Id, and a recommendation as
    `request_id`. Turns an unexpected exception into a problem without a traceback; the log has the traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        request_id = new_id("q", scope["app"].state.door.clock.now(), secrets.randbits(30))

        async def watched(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], _NO_SNIFFING, (b"x-request-id", request_id.encode())]
            await send(message)

        with logs.context(request=request_id):
            try:
                await self._app(scope, receive, watched)
            except ClientDisconnect:
                return  # nobody waits for an answer
            except Exception as error:
                if started:
                    raise
                await unexpected(scope["path"], error)(scope, receive, watched)
