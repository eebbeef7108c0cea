"""The limits of one connection and of all, on a real loop and real sockets; time is what the sweep is called with."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop
from prometheus_client import REGISTRY

from services.wiring.http_protocol import BoundedProtocol, ConnectionTable
from shared.telemetry import metrics

pytestmark = pytest.mark.requirement("C-01")

TOKEN = "Authorization: Bearer good\r\n"
BIG = 6 << 20


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Refuses without a token before it reads a body; a few paths behave like slow or long answers."""
    path = scope["path"]
    if path != "/open" and not any(name == b"authorization" for name, _ in scope["headers"]):
        await answer(send, 401, b"no token")
        return
    if path != "/open":
        scope["state"]["caller"] = "somebody"
    if path == "/big":
        await answer(send, 200, b"x" * BIG)
        return
    if path == "/wait":
        await scope["state"]["go"].wait()
    if path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await scope["state"]["go"].wait()
        await send({"type": "http.response.body", "body": b"last", "more_body": False})
        return
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            scope["state"]["disconnected"].set()
            return
        body += message["body"]
        if not message["more_body"]:
            break
    await answer(send, 200, str(len(body)).encode())


async def answer(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


class World:
    def __init__(self, table: ConnectionTable, port: int, state: dict[str, Any]) -> None:
        self.table, self.port, self.state = table, port, state
        self.clients: list[Client] = []
        self._now = asyncio.get_running_loop().time()

    async def connect(self, text: str = "", token: bool = False) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=BIG)
        client = Client(reader, writer)
        self.clients.append(client)
        if token:
            await client.send(f"GET / HTTP/1.1\r\n{TOKEN}\r\n")
            assert (await client.answer())[0] == 200
        if text:
            await client.send(text)
        await self.settle()
        return client

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)

    async def pass_time(self, seconds: float, has_descriptors: bool = True) -> None:
        """Sweeps as often as the server does."""
        for _ in range(int(seconds)):
            self._now += 1
            self.table.sweep(self._now, has_descriptors)
        await self.settle()

    def closed(self, reason: str) -> float:
        return REGISTRY.get_sample_value("eyas_http_connections_closed_total", {"port": "test", "reason": reason}) or 0.0


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)
        await self.writer.drain()

    async def answer(self) -> tuple[int, str, bytes]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)).decode().lower()
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
        return int(head.split()[1]), head, await self.reader.readexactly(length)

    async def problem(self, status: int) -> dict[str, Any]:
        """The last answer of a connection: a problem document, and nothing after it."""
        got, head, body = await self.answer()
        assert got == status
        assert "content-type: application/problem+json" in head
        assert "connection: close" in head
        assert await self.ended()
        found: dict[str, Any] = json.loads(body)
        assert found["status"] == status
        return found

    async def ended(self) -> bool:
        """The connection is closed, without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 10) == b""
        except ConnectionError:
            return True

    def open(self) -> bool:
        return not self.reader.at_eof() and self.reader.exception() is None


@asynccontextmanager
async def serving(limit: int) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    state: dict[str, Any] = {"go": asyncio.Event(), "disconnected": asyncio.Event()}
    config, table = uvicorn.Config(app, http=BoundedProtocol, ws="none", log_config=None, lifespan="off"), ConnectionTable("test", limit)
    server = await loop.create_server(lambda: BoundedProtocol(config, table, state, loop), "127.0.0.1", 0)
    try:
        world = World(table, server.sockets[0].getsockname()[1], state)
        yield world
    finally:
        state["go"].set()
        server.close()
        for transport in [*(one.transport for one in table.connections), *(one.writer.transport for one in world.clients)]:
            transport.abort()
        await asyncio.sleep(0.01)


def run(story: Callable[[World], Awaitable[None]], connections: int = 100) -> None:
    async def main() -> None:
        async with serving(connections) as world:
            await story(world)

    uvloop.run(main())


def head(*lines: str) -> str:
    return "\r\n".join(("GET / HTTP/1.1", *lines)) + "\r\n\r\n"


def test_a_header_beyond_the_limit_ends_the_connection_before_it_is_read():
    async def story(world: World) -> None:
        client = await world.connect()
        sent = 0
        try:
            await client.send("GET / HTTP/1.1\r\nx: ")
            while sent < 60 << 20:
                client.writer.write(b"a" * 65_536)
                sent += 65_536
                await asyncio.wait_for(client.writer.drain(), 10)
        except ConnectionError:
            pass
        assert sent < 16 << 20  # buffers of two sockets; the server itself has read no more than one piece beyond the limit
        await world.settle()
        assert world.closed("headers") == 1
        assert not world.table.connections

    run(story)


@pytest.mark.parametrize(
    ("request_text", "status", "kind"),
    [
        (head("x: " + "a" * 70_000), 431, "headers-too-large"),
        (head(*(f"x{number}: 1" for number in range(101))), 431, "headers-too-large"),
        (f"GET /{'a' * 9000} HTTP/1.1\r\n\r\n", 414, "address-too-long"),
        (f"GET /{'a' * 70_000}", 414, "address-too-long"),
        ("NONSENSE\r\n\r\n", 400, "malformed"),
        (f"POST /open HTTP/1.1\r\n{TOKEN}Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "malformed"),
    ],
)
def test_a_head_beyond_a_limit_is_refused_with_a_problem(request_text, status, kind):
    async def story(world: World) -> None:
        client = await world.connect(request_text)
        assert (await client.problem(status))["type"].endswith(f"/{kind}")

    run(story)


def test_a_head_within_the_limits_and_a_body_in_the_same_piece_are_answered():
    async def story(world: World) -> None:
        client = await world.connect()
        await client.send(head(TOKEN.strip(), *(f"x{number}: {'a' * 600}" for number in range(95))))
        assert (await client.answer())[0] == 200
        for length in (0, 1, 60_000, 66_000, 900_000):
            await client.send(f"POST / HTTP/1.1\r\n{TOKEN}Content-Length: {length}\r\n\r\n".encode() + b"b" * length)
            assert (await client.answer())[::2] == (200, str(length).encode())
        await client.send(f"GET / HTTP/1.1\r\n{TOKEN}\r\n" * 500)  # pipelined, more than a piece
        for _ in range(500):
            assert (await client.answer())[0] == 200
        assert len(world.table.connections) == 1

    run(story)


def test_a_half_head_is_closed_at_its_deadline_however_slowly_it_grows():
    async def story(world: World) -> None:
        silent, half, dripping = [await world.connect(text) for text in ("", "GET / HT", "GET / HTTP/1.1\r\n")]
        again = await world.connect(token=True)
        await again.send("\r\nGET")
        await world.settle()
        for _ in range(9):
            await world.pass_time(1)
            await dripping.send("x: y\r\n")
        await world.settle()
        assert len(world.table.connections) == 4
        await world.pass_time(2)
        assert not world.table.connections
        assert await silent.ended()
        for client in (half, dripping, again):
            assert "10 s" in (await client.problem(408))["detail"]

    run(story)


def test_empty_lines_do_not_keep_an_idle_connection():
    async def story(world: World) -> None:
        client = await world.connect(token=True)
        for _ in range(11):
            await client.send("\r\n")
            await world.settle()
            await world.pass_time(1)
        assert not world.table.connections

    run(story)


def test_an_idle_connection_between_requests_has_no_deadline_of_the_sweep():
    async def story(world: World) -> None:
        client = await world.connect(token=True)
        await world.pass_time(70)
        await client.send(head(TOKEN.strip()))
        assert (await client.answer())[0] == 200

    run(story)


def test_a_slow_body_is_closed_at_its_deadline_and_its_handler_told():
    async def story(world: World) -> None:
        client = await world.connect(f"POST / HTTP/1.1\r\n{TOKEN}Content-Length: 100\r\n\r\nhalf")
        await world.pass_time(39)
        assert world.table.connections
        await world.pass_time(2)
        assert "40 s" in (await client.problem(408))["detail"]
        await asyncio.wait_for(world.state["disconnected"].wait(), 10)

    run(story)


def test_the_body_of_a_refused_request_is_read_up_to_the_size_of_a_legal_one():
    async def story(world: World) -> None:
        client = await world.connect("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
        assert (await client.answer())[0] == 401
        await client.send(b"b" * 1_000_000)
        await client.send(head(TOKEN.strip()))
        assert (await client.answer())[0] == 200  # the connection is as good as before
        endless = await world.connect("POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n")
        assert (await endless.answer())[0] == 401
        with pytest.raises(ConnectionError):
            for _ in range(300):
                await endless.send(b"b" * 65_536)
        assert world.closed("unread body") == 1
        waiting = await world.connect("POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n")
        assert (await waiting.answer())[0] == 401
        await world.pass_time(41)
        assert await waiting.ended()

    run(story)


def test_a_stream_and_a_long_answer_have_no_deadline():
    async def story(world: World) -> None:
        stream, slow = [await world.connect(f"GET {path} HTTP/1.1\r\n{TOKEN}\r\n") for path in ("/stream", "/wait")]
        await world.pass_time(1000)
        world.state["go"].set()
        assert (await slow.answer())[0] == 200
        assert b"last" in await asyncio.wait_for(stream.reader.readuntil(b"0\r\n\r\n"), 10)

    run(story)


def test_a_client_that_does_not_read_its_answer_is_closed_and_a_slow_reader_is_not():
    async def story(world: World) -> None:
        stuck, slow = [await world.connect() for _ in range(2)]
        for client in (stuck, slow):
            client.writer.transport.pause_reading()
            await client.send(f"GET /big HTTP/1.1\r\n{TOKEN}\r\n")
        await world.settle()
        assert len(world.table.connections) == 2
        await world.pass_time(20)
        slow.writer.transport.resume_reading()
        await world.settle()
        slow.writer.transport.pause_reading()
        await world.pass_time(11)
        assert len(world.table.connections) == 1
        slow.writer.transport.resume_reading()
        assert len((await slow.answer())[2]) == BIG
        assert world.closed("unread answer") == 1

    run(story)


def test_the_oldest_connection_without_a_token_makes_room_for_a_new_one():
    async def story(world: World) -> None:
        known = await world.connect(token=True)
        first, second = [await world.connect("GET / HT") for _ in range(2)]
        refused = await world.connect(head())  # answered 401, idle now
        assert (await refused.answer())[0] == 401
        third = await world.connect(token=True)
        assert await first.ended()
        assert len(world.table.connections) == 4
        fourth = await world.connect(token=True)
        assert await second.ended()
        fifth = await world.connect(token=True)
        assert await refused.ended()
        late = await world.connect("GET / HTTP/1.1\r\n")
        found = await late.problem(503)
        assert found["type"].endswith("/unavailable")
        for client in (known, third, fourth, fifth):
            await client.send(head(TOKEN.strip()))
            assert (await client.answer())[0] == 200
        assert world.closed("evicted") == 3
        assert world.closed("full") == 1

    run(story, 4)


def test_a_request_that_is_being_answered_is_never_evicted():
    async def story(world: World) -> None:
        working = await world.connect(f"GET /wait HTTP/1.1\r\n{TOKEN}\r\n")
        uploading = await world.connect(f"POST / HTTP/1.1\r\n{TOKEN}Content-Length: 4\r\n\r\nab")
        posing = await world.connect("POST /open HTTP/1.1\r\nContent-Length: 4\r\n\r\nab")  # no token, and a body that never ends
        await world.connect(token=True)
        assert await posing.ended()
        late = await world.connect()
        assert "retry-after: 1" in (await late.answer())[1]
        world.state["go"].set()
        await uploading.send("cd")
        assert (await working.answer())[0] == (await uploading.answer())[0] == 200

    run(story, 3)


def test_the_log_says_once_that_connections_run_out_and_once_that_it_is_over(caplog):
    caplog.set_level(logging.WARNING, "services.wiring.http_protocol")

    async def story(world: World) -> None:
        clients = [await world.connect(token=True) for _ in range(10)]
        await world.pass_time(5)
        assert value("eyas_http_connections") == 10
        assert value("eyas_http_connections_limit") == 10
        await world.connect()
        await world.pass_time(5)
        for client in clients[3:]:
            client.writer.close()
        await world.settle()
        await world.pass_time(20)
        assert value("eyas_http_connections") == 3

    run(story, 10)
    first, second = [record.getMessage() for record in caplog.records]
    assert "raise EYAS_CONNECTIONS if these are your clients port=test open=10 limit=10" in first
    assert "below the limit again port=test open=3 limit=10 turned_away=1" in second


def test_without_descriptors_connections_without_a_token_are_closed_and_the_log_says_so(caplog):
    caplog.set_level(logging.WARNING, "services.wiring.http_protocol")

    async def story(world: World) -> None:
        known = await world.connect(token=True)
        for _ in range(40):
            await world.connect("GET /")
        await world.pass_time(1, has_descriptors=False)
        assert len(world.table.connections) == 9
        await world.pass_time(1, has_descriptors=False)
        assert len(world.table.connections) == 1
        await world.pass_time(12)
        await known.send(head(TOKEN.strip()))
        assert (await known.answer())[0] == 200

    run(story)
    lines = [record.getMessage() for record in caplog.records if "file descriptors" in record.getMessage()]
    assert len(lines) == 2
    assert "raise the limit of open files (ulimit -Hn) connections=9" in lines[0]
    assert "free again" in lines[1]


def test_a_loop_that_was_busy_reads_what_clients_have_sent_before_it_judges_them():
    async def story(world: World) -> None:
        client = await world.connect("GET / HTTP/1.1\r\n")
        now = asyncio.get_running_loop().time()
        world.table.sweep(now, True)
        world.table.sweep(now + 60, True)
        await client.send(f"{TOKEN}\r\n")
        assert (await client.answer())[0] == 200

    run(story)


def value(name: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"port": "test"})


@pytest.fixture(autouse=True)
def counters_of_zero():
    for reason in metrics.HTTP_CLOSED_REASONS:
        metrics.HTTP_CLOSED.labels("test", reason).reset()
