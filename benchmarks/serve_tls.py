"""What mutual TLS with Triton costs a recommendation of four stages.

    python -m benchmarks.serve_tls [--rounds 5] [--seconds 10] [--connections 8] [--items 60000] [--users 160000]

Three platforms with the same version, side by side and measured in turn: one with an embedded Triton on a Unix socket, two with a Triton of
their own on TCP, without and with mutual TLS. CPU is that of platform and Triton together.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks import serve_world
from benchmarks.report import Row, publish
from benchmarks.rollout_world import World
from benchmarks.serve import CANDIDATES, WHOLE, K, Seen, measure_http, now, say
from shared.domain.route import Route
from tests.servers.platform_parts import Part
from tests.servers.platform_process import PlatformProcess, until
from tests.servers.ports import free_ports
from tests.servers.triton_certificates import Authority

SOCKET, PLAIN, TLS = "eyas, Unix socket", "eyas, TCP", "eyas, mutual TLS"


@dataclass(frozen=True)
class Contender:
    name: str
    platform: PlatformProcess
    processes: Sequence[psutil.Process]

    def measure(self, bodies: Sequence[str], connections: int, seconds: float) -> Seen:
        url = self.platform.client.base_url
        place = (url.host, str(url.port), "/v1/recommend/films", (self.platform.home / "token").read_text())
        return measure_http(WHOLE, place, bodies, connections, seconds, self.processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--users", type=int, default=160_000)
    options = parser.parse_args()
    users = np.random.default_rng(7).integers(1, options.users + 1, 20_000)
    bodies = [json.dumps({"user": int(user), "k": K}) for user in users]
    results = defaultdict[str, list[Seen]](list)
    with tempfile.TemporaryDirectory(prefix="eyas-serve-tls-") as folder, ExitStack() as undo:
        contenders = [start(name, Path(folder) / str(number), options, undo) for number, name in enumerate((SOCKET, PLAIN, TLS))]
        for number in range(options.rounds):
            for contender in contenders[number % 3 :] + contenders[: number % 3]:  # in another order each time
                say(f"round {number + 1} of {options.rounds}: {contender.name}")
                results[contender.name].append(contender.measure(bodies, options.connections, options.seconds))
    report(results, f"{options.items:,} items, {options.connections} at once")


def start(name: str, folder: Path, options: argparse.Namespace, undo: ExitStack) -> Contender:
    say(f"{name}: a version of {options.items:,} items and {options.users:,} users")
    home, data = folder / "home", folder / "data"
    data.mkdir(parents=True)
    spec = serve_world.spec("films", serve={"retrieve": {"candidates": CANDIDATES}})
    world = World(home, 1, {})
    number = serve_world.register(world, spec, options.items, options.users)
    world.routes.put("films", Route(number), now(), "bench", "a benchmark")
    world.close()
    settings, triton = dict[str, str](), None
    if name != SOCKET:
        authority, ports = Authority.create(folder / "certificates"), free_ports(3)
        security = [f"--tls={authority.server().folder}"] if name == TLS else ["--plaintext"]
        where = [
            f"--home={home / 'triton'}",
            *(f"--{part}={port}" for part, port in zip(("grpc", "metrics", "health"), ports, strict=True)),
        ]
        triton = Part("triton", ["services.triton.serve", *where, *security], folder)
        undo.callback(triton.stop)
        triton.ready()
        settings = {"EYAS_TRITON": f"127.0.0.1:{ports[0]}"}
        if name == TLS:
            settings["EYAS_TRITON_TLS"] = str(authority.client().folder)
    platform = undo.enter_context(PlatformProcess(home, data, settings=settings))
    until("it answers by itself", lambda: platform.post("/v1/recommend/films", {"user": 1, "k": K})["fallback"] is None, 300)
    assert platform.process is not None
    owners = [psutil.Process(pid) for pid in (platform.process.pid, *([triton.process.pid] if triton else []))]
    (server,) = [child for child in owners[-1].children() if child.name() == "tritonserver"]
    until("Triton has the model that it serves, and no other", lambda: len(server.children(recursive=True)) == 1, 60)
    return Contender(name, platform, [*owners, server, *server.children(recursive=True)])


def report(results: dict[str, list[Seen]], case: str) -> None:
    rows: list[Row] = []
    plain = [seen.cost for seen in results[PLAIN]]
    for name, rounds in results.items():
        rows += [
            Row(case, name, "CPU of a request", "ms", [seen.cost for seen in rounds]),
            Row(case, name, "latency, p50", "ms", [1000 * seen.quantile(0.5) for seen in rounds]),
            Row(case, name, "latency, p99", "ms", [1000 * seen.quantile(0.99) for seen in rounds]),
            Row(case, name, "failed or fallen back", "", [seen.failed for seen in rounds]),
        ]
        if name != PLAIN:
            ratios = [seen.cost / other for seen, other in zip(rounds, plain, strict=True)]
            rows.append(Row(case, name, f"CPU beside {PLAIN}", "x", ratios))
    publish("serve_tls", rows)


if __name__ == "__main__":
    main()
