"""One recommendation of four stages, and what it costs: a catalogue of 60,000 items, 160,000 users, 500 candidates, 10 items.

    python -m benchmarks.serve [--seconds 20] [--connections 1 8 32] [--items 60000] [--users 160000]

On one real tritonserver, in one run and with the same model: the bare gRPC call that scores 500 candidates, a plain FastAPI proxy in
front of that call, and the platform's whole request. CPU is that of everybody but who asks over HTTP; the bare call's client is what it
takes to ask, so its CPU counts.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import serve_bare, serve_world
from benchmarks.report import Row, publish
from benchmarks.rollout_world import World
from services.listening import bind
from shared.domain.route import Route
from tests.support import PlatformProcess, until

CANDIDATES = 500
K = 10
WHOLE = "eyas, the whole request"
_WARM = 3.0
_SATURATED = 0.7
_OPEN = 64
"""Connections of the open loop: more than are ever under way."""


@dataclass(frozen=True)
class Seen:
    """What a contender did at so many requests at once."""

    contender: str
    connections: int
    asked: float
    """Requests a second; 0: as many as so many connections can."""
    seconds: float
    latencies: Sequence[float]
    cpu: float
    """Seconds of all cores."""
    failed: int

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]

    @property
    def cost(self) -> float:
        """CPU of one request, in milliseconds."""
        return 1000 * self.cpu / len(self.latencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--users", type=int, default=160_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eyas-serve-") as folder, ExitStack() as undo:
        home, data = Path(folder) / "home", Path(folder) / "data"
        data.mkdir()
        spec = serve_world.spec("films", serve={"retrieve": {"candidates": CANDIDATES}})
        _say(f"a version of {asked.items:,} items and {asked.users:,} users")
        world = World(home, 1, {})
        number = serve_world.register(world, spec, asked.items, asked.users)
        world.routes.put("films", Route(number), _now(), "bench", "a benchmark")
        world.close()
        platform = undo.enter_context(PlatformProcess(home, data))
        until("it answers by itself", lambda: platform.post("/v1/recommend/films", {"user": 1, "k": K})["fallback"] is None, 120)
        found = list(_compare(platform, world, asked, undo))
    _report(found)


def _compare(platform: PlatformProcess, world: World, asked: argparse.Namespace, undo: ExitStack) -> Iterator[Seen]:
    assert platform.process is not None
    chance = np.random.default_rng(7)
    users = chance.integers(1, asked.users + 1, 20_000)
    bodies = [json.dumps({"user": int(user), "k": K}) for user in users]
    own = psutil.Process(platform.process.pid)
    triton = next(one for one in own.children(recursive=True) if "tritonserver" in one.name())
    until("Triton has the models that it serves, and no others", lambda: len(triton.children(recursive=True)) == 1, 60)
    servers = [triton, *triton.children(recursive=True)]
    everybody = [own, *servers]
    url = platform.client.base_url
    address = serve_bare.address_of(triton)
    model = serve_bare.Model.of(world, "films", address, Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="eyas-serve-bare-"))))
    for connections in asked.connections:
        _say(f"{connections} at once: the platform")
        token = (platform.home / "token").read_text()
        place = (url.host, str(url.port), "/v1/recommend/films", token)
        whole = _http(WHOLE, place, bodies, connections, asked.seconds, everybody)
        yield whole
        _say(f"{connections} at once: the bare call")
        yield _bare(model, connections, asked.seconds, servers, users)
        _say(f"{connections} at once: a plain proxy")
        with _proxy(model, address) as (process, port):
            lines = [
                json.dumps({"user": int(user), "items": chance.integers(1, asked.items + 1, CANDIDATES).tolist()}) for user in users[:2000]
            ]
            place = ("127.0.0.1", str(port), "/score", "none")
            yield _http("a FastAPI proxy", place, lines, connections, asked.seconds, [psutil.Process(process.pid), *servers])
    rate = _SATURATED * whole.rate
    _say(f"{rate:.0f} a second, {_SATURATED:.0%} of what it answers at most: the platform")
    place = (url.host, str(url.port), "/v1/recommend/films", token)
    yield _http(WHOLE, place, bodies, _OPEN, asked.seconds, everybody, rate)


def _http(
    contender: str,
    place: Sequence[str],
    bodies: Sequence[str],
    connections: int,
    seconds: float,
    those: Sequence[psutil.Process],
    rate: float = 0.0,
) -> Seen:
    def ask(span: float) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.serve_load", *place, str(connections), str(span), str(rate)]
        ended = subprocess.run(command, input="\n".join(bodies), capture_output=True, text=True, check=True)  # noqa: S603
        return dict(json.loads(ended.stdout))

    ask(_WARM)
    before = _cpu(those)
    found = ask(seconds)
    spent = _cpu(those) - before
    failed = sum(count for kind, count in found["kinds"].items() if kind != "200")
    return Seen(contender, connections, rate, found["seconds"], found["latencies"], spent, failed)


def _bare(model: serve_bare.Model, connections: int, seconds: float, servers: Sequence[psutil.Process], users: Any) -> Seen:
    model.ask(connections, _WARM, users)
    own = psutil.Process()
    before = _cpu([own, *servers])
    latencies, took = model.ask(connections, seconds, users)
    return Seen("the bare gRPC call", connections, 0.0, took, latencies, _cpu([own, *servers]) - before, 0)


@contextmanager
def _proxy(model: serve_bare.Model, address: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with bind("the proxy", 0, 0) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.serve_proxy", str(port), address, "films", str(model.version), str(model.folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        until("the proxy listens", lambda: _listens(port), 60)
        yield process, port
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _cpu(those: Sequence[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in those)


def _report(found: Sequence[Seen]) -> None:
    rows: list[Row] = []
    bare = {one.connections: one for one in found if one.contender == "the bare gRPC call"}
    for one in found:
        case = f"{one.asked:.0f} a second" if one.asked else f"{one.connections} at once"
        rows += [
            Row(case, one.contender, "requests a second", "1/s", [one.rate]),
            Row(case, one.contender, "latency, p50", "ms", [1000 * one.quantile(0.5)]),
            Row(case, one.contender, "latency, p99", "ms", [1000 * one.quantile(0.99)]),
            Row(case, one.contender, "CPU of a request", "ms", [one.cost]),
            Row(case, one.contender, "failed or fallen back", "", [one.failed]),
        ]
        beside = None if one.asked else bare[one.connections]
        if beside is not None and beside is not one:
            rows.append(Row(case, one.contender, "CPU beside the bare call", "x", [one.cost / beside.cost]))
    publish("serve", rows)


def _now() -> Any:
    return datetime.now(UTC)


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    main()
