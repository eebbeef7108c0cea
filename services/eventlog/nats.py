"""NATS JetStream client for threads that block: publishes, fetches and acknowledges messages.

The client library uses asyncio, so it runs in a loop on a separate thread. If the server is away, a call raises Unavailable at once and
the next call connects again. The URL holds credentials, so no message repeats the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import Unavailable, Unsupported

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

log = logging.getLogger(__name__)

T = TypeVar("T")

STREAM = "EYAS_EVENTS"
SUBJECT = "eyas.events"
CONSUMER = "join"
PATIENCE = 5.0
"""Seconds that a publisher waits for the server's acknowledgement."""
_CONNECTING = 3.0
ACK_WAIT = 30.0
"""Seconds after which an unacknowledged message is delivered again."""
REMEMBERED = 600.0
"""Seconds in which the server recognises a duplicate message."""
MOST_BYTES = 1 << 30
"""Maximum size of the stream, about 4 million events that wait for the database; a full stream refuses publishers and drops nothing.

The server reserves this size. After a restart, it does not restore a stream that is larger than 75% of the free disk space."""
_STORAGE_TOO_SMALL = 10047
"""The server's error code if its storage is smaller than the stream's maximum size."""


@dataclass(frozen=True)
class Message:
    id: str
    payload: bytes


class JetStream:
    def __init__(self, url: str, most_bytes: int = MOST_BYTES) -> None:
        try:
            import nats
        except ImportError:
            raise Unsupported("events on NATS need the NATS client: install it with pip install 'eyas[cluster]'") from None
        self._nats = nats
        self._servers = [server.strip() for server in url.split(",")]
        self._most_bytes = most_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._context: JetStreamContext | None = None
        self._pull: JetStreamContext.PullSubscription | None = None

    def publish(self, messages: Sequence[Message]) -> None:
        """Publishes the messages; they are durable when the call returns. The server ignores duplicates."""
        self._do(self._publish(messages), PATIENCE)

    def fetch(self, most: int, wait: float) -> list[Msg]:
        """Fetches messages that no other process works on; returns none after `wait` seconds without messages."""
        return self._do(self._fetch(most, wait), wait + PATIENCE)

    def acknowledge(self, messages: Sequence[Msg]) -> None:
        self._do(self._each([message.ack() for message in messages]), PATIENCE)

    def give_back(self, messages: Sequence[Msg], delay: float) -> None:
        """Returns messages to the stream, which delivers them again after `delay` seconds."""
        self._do(self._each([message.nak(delay=delay) for message in messages]), PATIENCE)

    def waiting(self) -> int:
        """Returns the number of unacknowledged messages."""
        return self._do(self._waiting(), PATIENCE)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T], patience: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(patience + PATIENCE)
        except (TooLate, TimeoutError, OSError, self._nats.errors.Error) as error:
            future.cancel()
            why = _why(error)
            if getattr(error, "err_code", None) == _STORAGE_TOO_SMALL:
                why = f"its storage is smaller than the {self._most_bytes >> 20} MiB of stream {STREAM}: free disk space there"
            raise Unavailable(f"NATS at {self.place} fails: {why}") from None

    @property
    def place(self) -> str:
        """Address of the servers without credentials."""
        return ", ".join(server.rpartition("@")[2].rpartition("//")[2] for server in self._servers)

    async def _publish(self, messages: Sequence[Message]) -> None:
        context = await self._opened()
        sent = (
            context.publish(SUBJECT, message.payload, timeout=PATIENCE, stream=STREAM, headers={"Nats-Msg-Id": message.id})
            for message in messages
        )
        await asyncio.gather(*sent)

    async def _fetch(self, most: int, wait: float) -> list[Msg]:
        context = await self._opened()
        if self._pull is None:
            from nats.js.api import AckPolicy, ConsumerConfig

            config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT, max_ack_pending=20_000)
            self._pull = await context.pull_subscribe(SUBJECT, durable=CONSUMER, stream=STREAM, config=config)
        try:
            return await self._pull.fetch(most, timeout=wait)
        except TimeoutError:
            return []

    async def _waiting(self) -> int:
        context = await self._opened()
        return int((await context.stream_info(STREAM)).state.messages)

    @staticmethod
    async def _each(work: Sequence[Coroutine[Any, Any, None]]) -> None:
        for coroutine in work:
            await coroutine

    async def _opened(self) -> JetStreamContext:
        async with self._opening:
            if self._client is None or self._context is None or self._client.is_closed:
                self._client = await self._connected()
                self._pull = None
                self._context = await self._made(self._client)
            return self._context

    async def _connected(self) -> Client:
        """Connects to the first server that accepts. The client never reconnects: nothing is buffered for a server that is away."""
        for server in self._servers[:-1]:
            with contextlib.suppress(OSError, self._nats.errors.Error, TimeoutError):
                return await self._connect(server)
        return await self._connect(self._servers[-1])

    async def _connect(self, server: str) -> Client:
        from nats.aio.client import Client

        client = Client()
        errors: list[Exception] = []

        async def note(error: Exception) -> None:
            errors.append(error)
            log.debug("nats: connection failed error=%s", error)

        try:
            opening = client.connect(server, name="eyas", connect_timeout=2, allow_reconnect=False, error_cb=note)
            await asyncio.wait_for(opening, _CONNECTING)
        except Exception as error:  # only the callback gets a refused password
            await client.close()
            raise next((fault for fault in errors if isinstance(fault, self._nats.errors.Error)), error) from None
        return client

    async def _made(self, client: Client) -> JetStreamContext:
        """Creates the stream if it is missing; leaves a stream with an operator's other limits unchanged."""
        from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
        from nats.js.errors import BadRequestError

        context = client.jetstream(publish_async_max_pending=10_000)
        config = StreamConfig(
            name=STREAM,
            description="Events on their way into Eyas's database",
            subjects=[SUBJECT],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            discard=DiscardPolicy.NEW,
            max_bytes=self._most_bytes,
            duplicate_window=REMEMBERED,
        )
        with contextlib.suppress(BadRequestError):  # the stream exists with other limits
            await context.add_stream(config)
        return context

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()


def _why(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return "no answer in time" if isinstance(error, TooLate | TimeoutError) or not text else text
