"""Fast path of good recommend requests: the framework's work for a request takes longer than the answer.

It does what the route does, with the same model of the body and the same handler. Any other request (another content type, a query, a large
or bad body, a token without permission) takes the route, which alone refuses requests; a test holds the answers of both paths equal.
"""

from __future__ import annotations

import re

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.access import Caller, caller_of
from services.api.json_bodies import is_doubtful, parse
from services.api.problems import refused
from services.api.rate_limits import ONLINE, TooFast
from services.api.recommend import Ask, recommend
from shared.domain.access import Role, may
from shared.domain.errors import EyasError, Invalid
from shared.domain.naming import NAME

_PATH = re.compile(f"/v1/recommend/({NAME.pattern})")


class FastPath:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = _target_of(scope)
        if target is None:
            await self._app(scope, receive, send)
            return
        caller, name, size = target
        try:
            scope["app"].state.door.limits.charge_online(caller.principal.token_id, name, size)
        except TooFast as error:
            await refused(scope["method"], scope["path"], error)(scope, receive, send)
            return
        caller.is_charged = True
        messages = [await receive()]
        while messages[-1].get("more_body", False):
            messages.append(await receive())
        ask = _good(b"".join(message.get("body", b"") for message in messages))
        if ask is None:

            async def replay() -> Message:
                return messages.pop(0) if messages else await receive()

            await self._app(scope, replay, send)
            return
        try:
            answer = await recommend(scope["app"].state.gateway, name, ask)
        except EyasError as error:
            await refused(scope["method"], scope["path"], error)(scope, receive, send)
            return
        body = answer.model_dump_json(exclude_unset=True).encode()
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _target_of(scope: Scope) -> tuple[Caller, str, int] | None:
    """Returns caller, recommender and size of the body, if everything before the body is as it should be."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    match = _PATH.fullmatch(scope["path"])
    headers = Headers(scope=scope)
    length = headers.get("content-length", "")
    if match is None or headers.get("content-type") != "application/json" or not (length.isdecimal() and len(length) < 19):
        return None
    size, caller = int(length), caller_of(scope)
    may_ask = may(caller.principal, Role.CLIENT) and caller.principal.sees(match[1])
    return (caller, match[1], size) if may_ask and size <= ONLINE.bytes else None


def _good(body: bytes) -> Ask | None:
    """Returns None also for a body whose strings need a check: the route does that in a thread."""
    try:
        return None if is_doubtful(body) else Ask.model_validate(parse(body, ONLINE.values))
    except (Invalid, HTTPException, RequestValidationError, ValidationError):
        return None
