"""Idempotency-Key: a repeated request gets the first answer and isn't done again.

The key is reserved before anything is done. If the process dies, the reservation goes stale: the repeated request is then done with the
same ids and the flag `again`, so that it adopts what the first try made.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from services.api.problems import problem
from shared.domain.errors import EyasError, Invalid, Malformed
from shared.ports import Clock, StoredResponse, StoredResponses

log = logging.getLogger(__name__)

HEADER = "Idempotency-Key"
RETENTION = timedelta(hours=24)
STALE = timedelta(seconds=60)
"""A request without an answer for so long counts as lost with its process."""

_HEADERS = frozenset({"content-type", "etag", "location"})
_NOT_FINAL = frozenset({409, 429})
"""Nothing was done; a repeated request may succeed."""


@dataclass(frozen=True)
class KeyReservation:
    """Reservation of a key. `again`: an earlier try began and never answered."""

    at: datetime
    entropy: int
    again: bool


Handler = Callable[[KeyReservation, Receive, Send], Awaitable[None]]


async def once(
    answers: StoredResponses, clock: Clock, token: str, key: str, scope: Scope, receive: Receive, send: Send, handle: Handler
) -> None:
    if not (1 <= len(key) <= 200 and key.isascii() and key.isprintable()):
        raise Malformed(f"{HEADER}: expected 1 to 200 printable ASCII characters, such as a UUID")
    body = await _read(receive)
    request = [scope["method"], scope["path"], scope["query_string"].decode("latin-1"), Headers(scope=scope).get("if-match", "")]
    digest = hashlib.sha256(json.dumps(request).encode() + b"\0" + body).hexdigest()
    acquired, answer = await run_in_threadpool(answers.take, token, key, digest, clock.now(), STALE, RETENTION)
    if not acquired:
        await _replay(answer, digest, scope, receive, send)
        return
    entropy = int.from_bytes(hashlib.sha256(f"{token}\0{key}".encode()).digest()[:4]) >> 2
    buffered = _BufferedResponse(send)
    try:
        await handle(KeyReservation(answer.at, entropy, answer.taken_at > answer.at), _again(body, receive), buffered.send)
    except Exception:
        await _settle(answers.release, token, key, answer.taken_at)
        raise
    if buffered.status >= 500 or buffered.status in _NOT_FINAL:
        await _settle(answers.release, token, key, answer.taken_at)
    else:
        await _settle(answers.keep, token, key, answer.taken_at, buffered.status, buffered.headers, buffered.body.decode())
    await buffered.deliver()


class _BufferedResponse:
    """Buffers the answer until it is stored."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = b""

    async def send(self, message: Message) -> None:
        self._messages.append(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message["headers"])
            self.headers = {name: value for name, value in headers if name in _HEADERS}
        else:
            self.body += message.get("body", b"")

    async def deliver(self) -> None:
        for message in self._messages:
            await self._send(message)


async def _replay(answer: StoredResponse, digest: str, scope: Scope, receive: Receive, send: Send) -> None:
    if answer.request != digest:
        raise Invalid(f"{HEADER}: this key was used for another request within the last {RETENTION.days * 24} hours: use a new key")
    if answer.status is None:
        detail = "the first request with this key is still running: try again in a moment"
        await problem("conflict", 409, detail, {"Retry-After": "1"})(scope, receive, send)
        return
    headers = {**answer.headers, "Idempotency-Replayed": "true"}
    await Response(answer.body.encode(), answer.status, headers)(scope, receive, send)


async def _settle(write: Callable[..., None], *values: object) -> None:
    """Logs a failed write: what was done is answered, though its answer can't be kept."""
    try:
        await run_in_threadpool(write, *values)
    except EyasError as error:
        log.error("idempotency: answer not stored error=%s", error)


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body


def _again(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
