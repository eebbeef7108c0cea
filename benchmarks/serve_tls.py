"""What mutual TLS with Triton costs a recommendation of four stages.

    python -m benchmarks.serve_tls [--rounds 5] [--seconds 10] [--connections 8] [--items 60000] [--users 160000]

Three platforms with the same version, side by side and measured in turn: one with an embedded Triton on a Unix socket, two with a Triton of
their own on TCP, without and with mutual TLS. CPU is that of platform and Triton together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.harness import Figures, Row, benchmark, say, scratch, until
from benchmarks.load import Load
from benchmarks.serve import bodies, measure, start, target_of
from tests.servers.platform_parts import Part
from tests.servers.platform_process import PlatformProcess
from tests.servers.ports import free_ports
from tests.servers.triton_certificates import Authority

SOCKET, PLAIN, TLS = "eyas, Unix socket", "eyas, TCP", "eyas, mutual TLS"


@benchmark("serve_tls")
def serve_tls(rounds: int = 5, seconds: float = 10, connections: int = 8, items: int = 60_000, users: int = 160_000) -> Iterator[Row]:
    figures = Figures(f"{items:,} items, {connections} at once")
    with scratch() as folder, ExitStack() as undo:
        contenders = [(name, *_start(name, folder / str(number), items, users, undo)) for number, name in enumerate((SOCKET, PLAIN, TLS))]
        for number in range(rounds):
            for name, platform, processes in contenders[number % 3 :] + contenders[: number % 3]:  # in another order each time
                say(f"round {number + 1} of {rounds}: {name}")
                measured = measure(Load(target_of(platform), bodies(users), connections), seconds, processes)
                figures.add(name, "CPU of a request", "ms", measured.cost)
                for share, value in measured.outcome.percentiles(50, 99).items():
                    figures.add(name, f"latency, {share}", "ms", value)
                figures.add(name, "failed or fallen back", "", measured.outcome.failed)
    yield from figures.rows()
    for name in (SOCKET, TLS):
        yield figures.ratios(name, PLAIN, "CPU of a request", "ms", f"CPU beside {PLAIN}")


def _start(name: str, folder: Path, items: int, users: int, undo: ExitStack) -> tuple[PlatformProcess, Sequence[psutil.Process]]:
    folder.mkdir()
    settings, owners = dict[str, str](), list[int]()
    if name != SOCKET:
        authority, ports = Authority.create(folder / "certificates"), free_ports(3)
        security = [f"--tls={authority.server().folder}"] if name == TLS else ["--plaintext"]
        listening = [f"--{part}={port}" for part, port in zip(("grpc", "metrics", "health"), ports, strict=True)]
        triton = Part("triton", ["services.triton.serve", f"--home={folder / 'home' / 'triton'}", *listening, *security], folder)
        undo.callback(triton.stop)
        triton.ready()
        owners.append(triton.process.pid)
        settings = {"EYAS_TRITON": f"127.0.0.1:{ports[0]}"}
        if name == TLS:
            settings["EYAS_TRITON_TLS"] = str(authority.client().folder)
    _, platform = start(folder, items, users, undo, settings)
    assert platform.process is not None
    processes = [psutil.Process(pid) for pid in (platform.process.pid, *owners)]
    (server,) = [child for child in processes[-1].children() if child.name() == "tritonserver"]
    until("Triton has the model that it serves, and no other", lambda: len(server.children(recursive=True)) == 1)
    return platform, [*processes, server, *server.children(recursive=True)]


if __name__ == "__main__":
    serve_tls()
