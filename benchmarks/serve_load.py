"""Requests over HTTP, as cheap as Python has it: so many at once, or so many a second.

    python -m benchmarks.serve_load HOST PORT PATH TOKEN CONNECTIONS SECONDS [RATE] < bodies

Without a rate each connection always has one under way (a closed loop). With one, requests leave when they are due, by whichever
connection is free, and their latency counts from then (an open loop): a pause of the server shows. A line of standard input is a body;
they are sent in turn. What became of them is printed as JSON, with the latencies of those that were answered with 200. A process of its
own: its work is nobody else's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator


class Caller(asyncio.Protocol):
    """One connection; the next request leaves when the answer is whole, and when it is due."""

    def __init__(self, requests: Iterator[bytes], dues: Iterator[float], seen: list[float], kinds: Counter[str], until: float) -> None:
        self._requests, self._dues, self._seen, self._kinds, self._until = requests, dues, seen, kinds, until
        self._read = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if len(body) < int(lengths[0].split(b":")[1]):
            return
        kind = _kind(head, body)
        if kind.startswith("200"):
            self._seen.append(time.perf_counter() - self._at)
        self._kinds[kind] += 1
        self._read = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _next(self) -> None:
        now = time.perf_counter()
        self._at = max(next(self._dues), 0.0) or now
        if max(now, self._at) >= self._until:
            self._transport.close()
        elif self._at > now:
            asyncio.get_running_loop().call_later(self._at - now, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._transport.write(next(self._requests))


def _kind(head: bytes, body: bytes) -> str:
    status = head.split(b" ", 2)[1].decode()
    return f"{status} fallback" if status == "200" and b'"fallback":null' not in body.replace(b" ", b"") else status


async def ask(host: str, port: int, requests: list[bytes], connections: int, seconds: float, rate: float) -> dict[str, object]:
    seen: list[float] = []
    kinds: Counter[str] = Counter()
    turns = itertools.cycle(requests)
    began = time.perf_counter()
    dues = (began + ticket / rate for ticket in itertools.count()) if rate else itertools.repeat(0.0)
    loop = asyncio.get_running_loop()
    callers = [
        (await loop.create_connection(lambda: Caller(turns, dues, seen, kinds, began + seconds), host, port))[1] for _ in range(connections)
    ]
    await asyncio.gather(*(one.ended for one in callers))
    took = time.perf_counter() - began
    return {"seconds": took, "kinds": kinds, "latencies": sorted(seen)}


def main() -> None:
    host, port, path, token, connections, seconds, rate = [*sys.argv[1:], "0"][:7]
    headers = {"Host": f"{host}:{port}", "Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "Content-Length: "
    bodies = [line.strip().encode() for line in sys.stdin if line.strip()]
    requests = [head.encode() + str(len(body)).encode() + b"\r\n\r\n" + body for body in bodies]
    sys.stdout.write(json.dumps(asyncio.run(ask(host, int(port), requests, int(connections), float(seconds), float(rate)))))


if __name__ == "__main__":
    main()
