"""Requests for recommendations over HTTP: as cheap as Python sends them, or as users who like some of the answers.

A closed loop has one request under way on each connection. An open loop sends a request when it is due, on whichever connection is free,
and its latency counts from then: a pause of the server shows as latency and not as fewer requests.

    python -m benchmarks.load < document.json     in a process of its own (`separately`)
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from benchmarks.harness import percentiles
from shared.testing.threads import Threads

LEAD, TAIL = 1.0, 0.5
"""Seconds that the loads beside a measurement run before and after it."""
_LIKES_EVERY = 0.2


@dataclass(frozen=True)
class Target:
    host: str
    port: int
    path: str
    token: str = ""

    @classmethod
    def of(cls, url: str, recommender: str, token: str) -> Target:
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 80, f"/v1/recommend/{recommender}", token.strip())

    def requests(self, bodies: Sequence[str]) -> list[bytes]:
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: "
        return [f"{head}{len(body)}\r\n\r\n{body}".encode() for body in bodies]


@dataclass(frozen=True)
class Load:
    """Clients of one address. Without a rate each connection always waits for an answer (a closed loop)."""

    target: Target
    bodies: Sequence[str]
    connections: int
    rate: float = 0.0


@dataclass(frozen=True)
class Outcome:
    milliseconds: Sequence[float]
    """Of requests that were answered with 200, sorted."""
    kinds: Mapping[str, int]
    """Answers by status; `200 fallback` is an answer without the version's scores."""
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        """Requests without an answer of the version's own."""
        return sum(count for kind, count in self.kinds.items() if kind != "200")

    @property
    def rate(self) -> float:
        return len(self.milliseconds) / self.seconds

    def percentile(self, share: float) -> float:
        return percentiles(self.milliseconds, share)[f"p{share:g}"]

    def percentiles(self, *shares: float) -> dict[str, float]:
        return percentiles(self.milliseconds, *shares)


def bodies_of(users: Sequence[int], k: int = 10) -> list[str]:
    return [json.dumps({"user": int(user), "k": k}) for user in users]


class _Connection(asyncio.Protocol):
    """The next request leaves when the answer is whole, and when it is due."""

    def __init__(self, requests: Iterator[bytes], dues: Iterator[float], latencies: list[float], kinds: Counter[str], until: float) -> None:
        self._requests, self._dues, self._latencies, self._kinds, self._until = requests, dues, latencies, kinds, until
        self._received = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if len(body) < int(lengths[0].split(b":")[1]):
            return
        kind = head.split(b" ", 2)[1].decode()
        if kind == "200":
            self._latencies.append(time.perf_counter() - self._due)
            if b'"fallback":null' not in body.replace(b" ", b""):
                kind = "200 fallback"
        self._kinds[kind] += 1
        self._received = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _next(self) -> None:
        now = time.perf_counter()
        self._due = max(next(self._dues), 0.0) or now
        if max(now, self._due) >= self._until:
            self._transport.close()
        elif self._due > now:
            asyncio.get_running_loop().call_later(self._due - now, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._transport.write(next(self._requests))


async def _run_load(load: Load, seconds: float) -> Outcome:
    latencies: list[float] = []
    kinds: Counter[str] = Counter()
    requests, began = itertools.cycle(load.target.requests(load.bodies)), time.perf_counter()
    dues = (began + ticket / load.rate for ticket in itertools.count()) if load.rate else itertools.repeat(0.0)
    loop, until = asyncio.get_running_loop(), began + seconds
    connections = [
        (await loop.create_connection(lambda: _Connection(requests, dues, latencies, kinds, until), load.target.host, load.target.port))[1]
        for _ in range(load.connections)
    ]
    await asyncio.gather(*(connection.ended for connection in connections))
    return Outcome(sorted(1000 * latency for latency in latencies), dict(kinds), time.perf_counter() - began)


async def _run_loads(measured: Sequence[Load], seconds: float, beside: Sequence[Load]) -> tuple[Outcome, Outcome]:
    side_loads = asyncio.gather(*(_run_load(load, LEAD + seconds + TAIL) for load in beside))
    await asyncio.sleep(LEAD if beside else 0)
    own = await asyncio.gather(*(_run_load(load, seconds) for load in measured))
    return _sum(own), _sum(await side_loads)


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    kinds = sum((Counter(outcome.kinds) for outcome in outcomes), Counter[str]())
    milliseconds = sorted(itertools.chain.from_iterable(outcome.milliseconds for outcome in outcomes))
    return Outcome(milliseconds, dict(kinds), max((outcome.seconds for outcome in outcomes), default=0.0))


def run_loads(measured: Sequence[Load], seconds: float, beside: Sequence[Load] = ()) -> tuple[Outcome, Outcome]:
    """All answers of the measured loads, and those of the loads beside them, which begin earlier and end later."""
    return asyncio.run(_run_loads(measured, seconds, beside))


def separately(load: Load, seconds: float) -> Outcome:
    """Runs the load in a process of its own, whose CPU is not that of the caller."""
    document = json.dumps({"load": asdict(load), "seconds": seconds})
    command = [sys.executable, "-m", "benchmarks.load"]
    return Outcome(**json.loads(subprocess.run(command, input=document, capture_output=True, text=True, check=True).stdout))  # noqa: S603


@dataclass(frozen=True)
class Reply:
    due: float
    """When the request was to be sent, on the monotonic clock: latency counts from here."""
    seconds: float
    version: int
    failure: str = ""


class Users(Threads):
    """A context: `rate` requests a second by `threads` connections. `likes` is the probability that a user likes an answer."""

    def __init__(self, url: str, token: str, name: str, users: int, rate: float, likes: float, threads: int = 32) -> None:
        super().__init__(*(functools.partial(self._visit, seed) for seed in range(threads)), self._report_likes)
        self._address, self._headers = urlsplit(url), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._name, self._users, self._rate, self._likes = name, users, rate, likes
        self._tickets = itertools.count()
        self._liked: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.replies: list[Reply] = []
        self.refused_likes = 0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return super().__enter__()

    @property
    def failures(self) -> Sequence[Reply]:
        return [reply for reply in self.replies if reply.failure]

    def _visit(self, seed: int) -> None:
        chance, post = random.Random(seed), self._poster()  # noqa: S311
        while not self.over.is_set():
            due = self._began + next(self._tickets) / self._rate
            if self.over.wait(max(0.0, due - time.monotonic())):
                return
            user, version, failure = chance.randrange(self._users), 0, ""
            try:
                status, answer = post(f"/v1/recommend/{self._name}", {"user": user, "k": 5})
                if status != 200 or answer["fallback"] is not None:
                    failure = f"{status}: {answer.get('fallback') or answer.get('detail') or answer}"
                version = answer.get("version", 0)
                if not failure and chance.random() < self._likes:
                    like = {"recommender": self._name, "user": user, "item": answer["items"][0]["item"], "value": 5}
                    with self._lock:
                        self._liked.append({**like, "request_id": answer["request_id"]})
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure, post = f"{type(error).__name__}: {error}", self._poster()
            self.replies.append(Reply(due, time.monotonic() - due, version, failure))

    def _report_likes(self) -> None:
        post = self._poster()
        while not self.over.wait(_LIKES_EVERY):
            with self._lock:
                batch, self._liked = self._liked[:500], self._liked[500:]
            if not batch:
                continue
            try:
                status, _ = post("/v1/events", {"events": batch})
            except (OSError, http.client.HTTPException, ValueError):
                status, post = 0, self._poster()
            self.refused_likes += 0 if 200 <= status < 300 else len(batch)

    def _poster(self) -> Callable[[str, Any], tuple[int, Any]]:
        """A connection that is kept alive."""
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=30)

        def post(path: str, body: Any) -> tuple[int, Any]:
            connection.request("POST", path, json.dumps(body), self._headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")

        return post


if __name__ == "__main__":
    document = json.load(sys.stdin)
    described = document["load"]
    described["target"] = Target(**described["target"])
    outcome = asyncio.run(_run_load(Load(**described), document["seconds"]))
    sys.stdout.write(json.dumps(asdict(outcome)))
