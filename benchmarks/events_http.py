"""Events over HTTP into a whole platform: NDJSON of 500 lines a request, half impressions of a front end, half clicks that name them.

The platform is `eyas up` with a real tritonserver and a version that serves; its gateway, its joiner and its monitor are one process. Who
sends is a process of its own on the same machine, whose CPU is told apart.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil

from benchmarks.report import Row
from services.eventlog.kpis import SqlKpis
from services.store.engine import open_engine, sqlite_url
from tests.servers.nats_server import NatsServer
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import spec, write_world

SENDERS, LINES = 4, 500
_NAME, _VERSION = "movies", 1
_LONG = 600.0


@dataclass(frozen=True)
class _Sent:
    events: int
    seconds: float
    sender: float
    """Seconds of CPU."""
    latencies: list[float]


def over_http(folder: Path, seconds: float, stream: bool) -> list[Row]:
    data, home = folder / "data", folder / "home"
    write_world(data)
    with ExitStack() as undo:
        nats = NatsServer(folder / "nats") if stream else None
        if nats is not None:
            nats.start()
            undo.callback(nats.kill)
            os.environ["EYAS_EVENTS"] = nats.url
            undo.callback(os.environ.pop, "EYAS_EVENTS")
        platform = undo.enter_context(PlatformProcess(home, data))
        run = platform.post("/v1/recommenders", spec(data) | {"model": {"family": "popularity"}, "gates": [{"parity": 1e-6}]})["run"]
        platform.wait_for_rollout(platform.wait_for_run(run, "registered")["rollout"], "promoted")
        assert platform.process is not None
        pids = [platform.process.pid, *([nats.pid] if nats is not None else [])]
        began, before = time.monotonic(), [_cpu(pid) for pid in pids]
        sent = _send(str(platform.client.base_url).rstrip("/"), (home / "token").read_text(), seconds)
        engine = open_engine(sqlite_url(home / "eyas.db"))
        undo.callback(engine.dispose)
        kpis, now = SqlKpis(engine), datetime.now(UTC)

        def joined() -> bool:
            earned = kpis.earned(_NAME, _VERSION, now - timedelta(hours=1), now + timedelta(hours=1), timedelta(minutes=30), ())
            return earned.answers == earned.hits == sent.events // 2

        until("every event is there, and every answer was hit", joined, _LONG)
        took, spent = time.monotonic() - began, [_cpu(pid) - old for pid, old in zip(pids, before, strict=True)]
    where = ("NDJSON over HTTP, a whole platform", "eyas: NATS JetStream, SQLite" if stream else "eyas: SQLite")
    cpu = zip(("platform", "nats-server"), spent, strict=False)
    return [
        Row(*where, "events acknowledged", "1/s", [sent.events / sent.seconds]),
        Row(*where, "events joined", "1/s", [sent.events / (took if stream else sent.seconds)]),
        Row(*where, "time of a request", "ms", [one * 1000 for one in sent.latencies]),
        *(Row(*where, f"CPU, {who}", "us/event", [value / sent.events * 1e6]) for who, value in cpu),
        Row(*where, "CPU, sender", "us/event", [sent.sender / sent.events * 1e6]),
    ]


def _send(url: str, token: str, seconds: float) -> _Sent:
    numbers, ending = itertools.count(), threading.Event()
    latencies: list[float] = []

    def work(_: int) -> int:
        sent = 0
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        with httpx.Client(headers=headers, timeout=120) as client:
            while not ending.is_set():
                body = _lines(next(numbers))
                began = time.monotonic()
                taken = client.post(f"{url}/v1/events", content=body).raise_for_status().json()
                latencies.append(time.monotonic() - began)
                if (taken["accepted"], taken["refused"]) != (LINES, 0):
                    raise SystemExit(f"of {LINES} lines the platform took {taken}")
                sent += LINES
        return sent

    began, before = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(SENDERS) as pool:
        working = [pool.submit(work, n) for n in range(SENDERS)]
        time.sleep(seconds)
        ending.set()
        total = sum(one.result() for one in working)
    return _Sent(total, time.monotonic() - began, time.process_time() - before, latencies)


def _lines(number: int) -> str:
    at = datetime.now(UTC).isoformat()
    found = []
    for n in range(number * LINES // 2, (number + 1) * LINES // 2):
        head = f'"recommender":"{_NAME}","user":{n * 7919 % 100_000},"request_id":"p{n}","at":"{at}"'
        items = [(n + 31 * place) % 60_000 for place in range(10)]
        found.append(f'{{"kind":"impression",{head},"version":{_VERSION},"items":{items}}}')
        found.append(f'{{"kind":"click","id":"e{n}",{head},"item":{items[n % 10]}}}')
    return "\n".join(found)


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
