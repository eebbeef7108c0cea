"""One recommendation of four stages, and what it costs: a catalogue of 60,000 items, 160,000 users, 500 candidates, 10 items.

    python -m benchmarks.serve [--seconds 20] [--connections 1 8 32] [--items 60000] [--grown 250000 1000000] [--users 160000] [--no-peer]

On one real tritonserver, in one run and with the same model: the bare gRPC call that scores 500 candidates, a plain FastAPI proxy in
front of that call, and the platform's whole request; beside them BentoML with that model in its own process. CPU is that of everybody
but who asks over HTTP; the bare call's client is what it takes to ask, so its CPU counts. Then the platform and the bare call alone with
catalogues of other sizes.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import serve_bare, serve_peer, serve_world
from benchmarks.report import Row, publish
from benchmarks.rollout_world import World
from services.listening import bind
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess, until

CANDIDATES = 500
K = 10
WHOLE = "eyas, the whole request"
_WARM = 3.0
_SATURATED = 0.7
_OPEN = 64
"""Connections of the open loop: more than are ever under way."""
_OVERLOAD, _CROWD = 1.5, 512


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
    items: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all requests, by stage; those that were answered together share theirs."""
    resident: float = 0.0
    """MiB of the platform's process."""

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
    parser.add_argument("--grown", type=int, nargs="*", default=[250_000, 1_000_000])
    parser.add_argument("--users", type=int, default=160_000)
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="without BentoML, which is installed on first use")
    asked = parser.parse_args()
    found = list(_of_size(asked, asked.items, asked.connections, whole=True))
    for items in asked.grown:
        found += _of_size(asked, items, asked.connections[-1:], whole=False)
    _report(found)


def _of_size(asked: argparse.Namespace, items: int, connections: Sequence[int], whole: bool) -> Iterator[Seen]:
    with tempfile.TemporaryDirectory(prefix="eyas-serve-") as folder, ExitStack() as undo:
        home, data = Path(folder) / "home", Path(folder) / "data"
        data.mkdir()
        spec = serve_world.spec("films", serve={"retrieve": {"candidates": CANDIDATES}})
        say(f"a version of {items:,} items and {asked.users:,} users")
        world = World(home, 1, {})
        number = serve_world.register(world, spec, items, asked.users)
        world.routes.put("films", Route(number), now(), "bench", "a benchmark")
        world.close()
        platform = undo.enter_context(PlatformProcess(home, data))
        until("it answers by itself", lambda: platform.post("/v1/recommend/films", {"user": 1, "k": K})["fallback"] is None, 300)
        for one in _compare(platform, world, asked, items, connections, whole, undo):
            yield replace(one, items=items)


def _compare(
    platform: PlatformProcess, world: World, asked: argparse.Namespace, items: int, many: Sequence[int], whole: bool, undo: ExitStack
) -> Iterator[Seen]:
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
    for connections in many:
        say(f"{connections} at once: the platform")
        token = (platform.home / "token").read_text()
        place = (url.host, str(url.port), "/v1/recommend/films", token)
        ours = measure_http(WHOLE, place, bodies, connections, asked.seconds, everybody, stages=partial(_stages, platform))
        yield replace(ours, resident=own.memory_info().rss / 2**20)
        say(f"{connections} at once: the bare call")
        yield _bare(model, connections, asked.seconds, servers, users)
        if not whole:
            continue
        say(f"{connections} at once: a plain proxy")
        with _proxy(model, address) as (process, port):
            lines = [json.dumps({"user": int(user), "items": chance.integers(1, items + 1, CANDIDATES).tolist()}) for user in users[:2000]]
            place = ("127.0.0.1", str(port), "/score", "none")
            yield measure_http("a FastAPI proxy", place, lines, connections, asked.seconds, [psutil.Process(process.pid), *servers])
        if asked.peer:
            say(f"{connections} at once: {serve_peer.NAME}")
            with serve_peer.serving(model.folder) as (those, port):
                place = ("127.0.0.1", str(port), "/score", "none")
                yield measure_http(serve_peer.NAME, place, lines, connections, asked.seconds, those)
    if not whole:
        return
    rate = _SATURATED * ours.rate
    say(f"{rate:.0f} a second, {_SATURATED:.0%} of what it answers at most: the platform")
    place = (url.host, str(url.port), "/v1/recommend/films", token)
    yield measure_http(WHOLE, place, bodies, _OPEN, asked.seconds, everybody, rate)
    rate = _OVERLOAD * ours.rate
    say(f"{rate:.0f} a second, {_OVERLOAD:.0%} of what it answers at most: the platform")
    yield measure_http(WHOLE, place, bodies, _CROWD, asked.seconds, everybody, rate)


def measure_http(
    contender: str,
    place: Sequence[str],
    bodies: Sequence[str],
    connections: int,
    seconds: float,
    those: Sequence[psutil.Process],
    rate: float = 0.0,
    stages: Callable[[], Mapping[str, float]] = dict,
) -> Seen:
    def ask(span: float) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.serve_load", *place, str(connections), str(span), str(rate)]
        ended = subprocess.run(command, input="\n".join(bodies), capture_output=True, text=True, check=True)  # noqa: S603
        return dict(json.loads(ended.stdout))

    ask(_WARM)
    before, former = _cpu(those), stages()
    found = ask(seconds)
    spent = _cpu(those) - before
    by_stage = {stage: total - former.get(stage, 0.0) for stage, total in stages().items()}
    failed = sum(count for kind, count in found["kinds"].items() if kind != "200")
    return Seen(contender, connections, rate, found["seconds"], found["latencies"], spent, failed, stages=by_stage)


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


def _stages(platform: PlatformProcess) -> dict[str, float]:
    """Seconds so far, by stage."""
    families = text_string_to_metric_families(httpx.get(platform.metrics_url).text)
    return {
        sample.labels["stage"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "eyas_recommend_stage_seconds_sum"
    }


def _cpu(those: Sequence[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in those)


def _report(found: Sequence[Seen]) -> None:
    rows: list[Row] = []
    bare = {(one.items, one.connections): one for one in found if one.contender == "the bare gRPC call"}
    for one in found:
        case = f"{one.asked:.0f} a second" if one.asked else f"{one.connections} at once"
        case = f"{one.items:,} items, {case}"
        rows += [
            Row(case, one.contender, "requests a second", "1/s", [one.rate]),
            Row(case, one.contender, "latency, p50", "ms", [1000 * one.quantile(0.5)]),
            Row(case, one.contender, "latency, p99", "ms", [1000 * one.quantile(0.99)]),
            Row(case, one.contender, "CPU of a request", "ms", [one.cost]),
            Row(case, one.contender, "failed or fallen back", "", [one.failed]),
        ]
        rows += [
            Row(case, one.contender, f"of that, {stage}", "ms", [1000 * seconds / len(one.latencies)])
            for stage, seconds in one.stages.items()
        ]
        if one.resident:
            rows.append(Row(case, one.contender, "resident memory of the platform", "MiB", [one.resident]))
        beside = None if one.asked else bare[one.items, one.connections]
        if beside is not None and beside is not one:
            rows.append(Row(case, one.contender, "CPU beside the bare call", "x", [one.cost / beside.cost]))
    publish("serve", rows)


def now() -> Any:
    return datetime.now(UTC)


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    main()
