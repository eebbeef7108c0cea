"""Attacks a platform in one way until SIGTERM, in a process of the lowest priority.

    python -m benchmarks.attack_clients ATTACK < targets.json

`targets.json` holds the platform's address and tokens (class `Targets`). The program prints a line when the attack has begun. At its end
it prints, as JSON, the number of answers by status; `closed` counts connections that ended without an answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

HUGE_CONNECTIONS, HUGE_BYTES = 4, 60 << 20
HALF_REQUESTS = 400
SLOW_SCRAPERS = 300
CONTEXT_NAMES = 85_000
YAML_BYTES = 64 << 10
_PIECE = 64 << 10
_DRIP = 1.0
"""Seconds between two bytes of a slow header."""
_AGAIN = 0.05
"""Seconds until a connection that has ended is opened again."""


@dataclass(frozen=True)
class Targets:
    host: str
    port: int
    metrics_port: int
    recommender: str
    tokens: Mapping[str, str]
    """By role."""


class Attack:
    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self.answers: Counter[str] = Counter()

    async def huge_headers(self) -> None:
        """Connections without a token, each with one header of 60 MB."""
        await self._repeat(HUGE_CONNECTIONS, self._huge_header)

    async def slow_headers(self) -> None:
        """Half requests that grow by a byte a second."""
        await self._repeat(HALF_REQUESTS, lambda: self._half_request(self.targets.port))

    async def slow_scrapers(self) -> None:
        await self._repeat(SLOW_SCRAPERS, lambda: self._half_request(self.targets.metrics_port))

    async def context_names(self) -> None:
        """One client's recommendations, each with a context of as many names as fit."""
        context = {f"c{number:05}": 1 for number in range(CONTEXT_NAMES)}
        body = json.dumps({"user": 1, "context": context}, separators=(",", ":")).encode()
        await self._repeat(1, lambda: self._post(f"/v1/recommend/{self.targets.recommender}", "client", body))

    async def yaml(self) -> None:
        """One viewer's specs to validate: lists in lists."""
        await self._repeat(1, lambda: self._post("/v1/recommenders:validate", "viewer", nested_lists(), "application/yaml"))

    async def runs(self) -> None:
        """One operator's runs, as fast as they are accepted."""
        await self._repeat(1, lambda: self._post(f"/v1/recommenders/{self.targets.recommender}/runs", "operator", b'{"fresh":true}'))

    async def _repeat(self, count: int, attempt: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                try:
                    await attempt()
                except OSError:
                    self.answers["closed"] += 1
                await asyncio.sleep(_AGAIN)

        tasks = [asyncio.create_task(repeat()) for _ in range(count)]
        await asyncio.sleep(0.5)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await asyncio.gather(*tasks)

    @asynccontextmanager
    async def _connection(self, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self.targets.host, port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _huge_header(self) -> None:
        async with self._connection(self.targets.port) as (reader, writer):
            with suppress(ConnectionError):
                writer.write(b"GET /v1/recommenders HTTP/1.1\r\nHost: x\r\nX-Big: ")
                for _ in range(HUGE_BYTES // _PIECE):
                    writer.write(b"a" * _PIECE)
                    await writer.drain()
                writer.write(b"\r\n\r\n")
            await self._count(reader)

    async def _half_request(self, port: int) -> None:
        async with self._connection(port) as (reader, writer):
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            await asyncio.sleep(_DRIP * random.random())  # noqa: S311
            while not reader.at_eof() and reader.exception() is None:
                writer.write(b"a")
                await asyncio.sleep(_DRIP)
            await self._count(reader)

    async def _post(self, path: str, role: str, body: bytes, media: str = "application/json") -> None:
        """One request after the other on one connection."""
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.targets.tokens[role]}\r\nContent-Type: {media}\r\n"
        async with self._connection(self.targets.port) as (reader, writer):
            while True:
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                status, length = await _head(reader)
                self.answers[status] += 1
                if length is None:
                    return
                await reader.readexactly(length)

    async def _count(self, reader: asyncio.StreamReader) -> None:
        try:
            status, _ = await _head(reader)
        except OSError:
            status = "closed"
        self.answers[status] += 1


async def _head(reader: asyncio.StreamReader) -> tuple[str, int | None]:
    """Status, and the length of the body that follows; none where the connection ends."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("ended without an answer") from error
    lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:")]
    return head.split(" ")[1], None if "connection: close" in head or not lengths else lengths[0]


def nested_lists() -> bytes:
    """64 KB that take PyYAML seconds, at a depth that Python's stack has room for."""
    block = "[" * 90 + "]" * 90 + ","
    return ("a: [" + block * ((YAML_BYTES - 16) // len(block)) + "]").encode()


ATTACKS: Mapping[str, Callable[[Attack], Awaitable[None]]] = {
    "huge headers": Attack.huge_headers,
    "slow headers": Attack.slow_headers,
    "slow scrapers": Attack.slow_scrapers,
    "context names": Attack.context_names,
    "yaml": Attack.yaml,
    "pending runs": Attack.runs,
}


async def _run(attack: Attack, name: str) -> None:
    task = asyncio.ensure_future(ATTACKS[name](attack))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    os.nice(19)
    attack = Attack(Targets(**json.load(sys.stdin)))
    asyncio.run(_run(attack, sys.argv[1]))
    sys.stdout.write(json.dumps(attack.answers) + "\n")
