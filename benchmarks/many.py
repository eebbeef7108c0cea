"""The control plane and one gateway with many recommenders that serve and that nobody asks: what each costs, and what slows down.

    python -m benchmarks.many [--counts 10 100 1000 10000] [--databases sqlite postgresql] [--active 10] [--idle 30] [--patience 600]

A real platform process on a filled database; a fake model server and stages that end at once stand behind their ports. Of each count:
seconds to ready and until the last one answers, the API's answers, `apply` and until its run has started, until a change of one route has
reached the gateway, the scrape, memory, and, left alone, cores, and of a pass of each loop seconds and statements to the database.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console

from benchmarks.databases import databases
from benchmarks.many_platform import HELD, SAID
from benchmarks.many_world import fill, name_of, specified
from benchmarks.report import Row, publish
from shared.artifacts import FsspecArtifacts

_REQUESTS = 100
_APPLIED = 8
_PATIENCE = 600.0
_PASSES = 2
"""Of each loop, after which what is done once, at first, is over."""
_NONE = (0.0, 0.0, 0.0)
LOOPS = {
    "control": "control loop",
    "gateway": "gateway's loop",
    "monitor": "monitor's loop",
    "runs": "runs' loop",
    "retrainers": "retrainers' loop",
    "features": "features' loop",
    "compactor": "compactor's loop",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    parser.add_argument("--active", type=int, default=10, help="runs whose stage goes on meanwhile")
    parser.add_argument("--idle", type=float, default=30, help="seconds that it is watched, left alone")
    parser.add_argument("--patience", type=float, default=_PATIENCE, help="seconds that a start is waited for")
    given = parser.parse_args()
    rows: list[Row] = []
    with databases() as fresh:
        for database, count in itertools.product(given.databases, given.counts):
            Console().print(f"{database}: {count:,} recommenders")
            with tempfile.TemporaryDirectory(prefix="eyas-many-") as folder:
                rows += _measured(database, fresh(database), Path(folder), count, given.active, given.idle, given.patience)
            publish("many", rows)
    return 0


@dataclass
class Table:
    case: str
    contender: str
    rows: list[Row] = field(default_factory=list)

    def note(self, metric: str, unit: str, *values: float) -> None:
        self.rows.append(Row(self.case, self.contender, metric, unit, values))


def _measured(database: str, url: str, folder: Path, count: int, active: int, idle: float, patience: float) -> list[Row]:
    table = Table(f"{count} recommenders", f"eyas on {database}")
    home = folder / "home"
    fill(url, FsspecArtifacts(str(home / "artifacts")), count)
    began = time.monotonic()
    with _platform(home, url) as (client, process):
        table.note("until it listens", "s", time.monotonic() - began)
        _until(lambda: client.get("/readyz").status_code == 200, patience)
        table.note("until the gateway is ready", "s", time.monotonic() - began)
        last = name_of(count - 1)
        _until(lambda: _answers(client, last), patience)
        table.note("until the last recommender answers", "s", time.monotonic() - began)
        for number in range(active):
            _apply(client, f"{HELD}{number:03}")
        _until(lambda: _settled(home), patience)
        _at_rest(table, home, process, idle)
        _requests(table, client, count)
        _applied(table, client)
        _scrape(table, home)
        table.note("resident memory", "MiB", process.memory_info().rss / 2**20)
    return table.rows


def _settled(home: Path) -> bool:
    loops = [times for name, (times, *_) in _said(home)["steps"].items() if name.partition("/")[0] in LOOPS]
    return min(loops, default=0) >= _PASSES


def _at_rest(table: Table, home: Path, process: psutil.Process, seconds: float) -> None:
    before, cpu = _said(home), process.cpu_times()
    time.sleep(seconds)
    after, now = _said(home), process.cpu_times()
    passed = after["at"] - before["at"]
    table.note("at rest: cores", "", (now.user + now.system - cpu.user - cpu.system) / seconds)
    sent = {name: total - before["statements"].get(name, 0) for name, total in after["statements"].items()}
    table.note("at rest: statements to the database", "1/s", sum(sent.values()) / passed)
    for name, called in LOOPS.items():
        found = _pass(before["steps"], after["steps"], sent, name, passed)
        for (metric, unit), value in zip((("clock", "s"), ("CPU", "s"), ("statements", "")), found, strict=True):
            table.note(f"a pass of the {called}: {metric}", unit, value)


def _pass(
    before: Mapping[str, list[float]], after: Mapping[str, list[float]], sent: Mapping[str, float], loop: str, passed: float
) -> tuple[float, float, float]:
    """Means of what ended meanwhile; a step that never did took as long as it was watched, at least."""
    clock = cpu = statements = 0.0
    for name in {*after, *sent}:
        if name.partition("/")[0] == loop:
            times, seconds, busy = (now - then for now, then in zip(after.get(name, _NONE), before.get(name, _NONE), strict=True))
            clock += seconds / times if times else passed
            cpu += busy / times if times else 0.0
            statements += sent.get(name, 0) / (times or 1)
    return clock, cpu, statements


def _requests(table: Table, client: httpx.Client, count: int) -> None:
    chance = random.Random(1)  # noqa: S311
    some = [name_of(chance.randrange(count)) for _ in range(_REQUESTS)]
    asked: Mapping[str, Sequence[Callable[[], httpx.Response]]] = {
        "list, 50 of them": [lambda: client.get("/v1/recommenders")] * (_REQUESTS // 5),
        "get": [lambda name=name: client.get(f"/v1/recommenders/{name}") for name in some],  # type: ignore[misc]
        "recommend": [lambda name=name: client.post(f"/v1/recommend/{name}", json={"user": 1}) for name in some],  # type: ignore[misc]
    }
    for what, requests in asked.items():
        times = sorted(_timed(request) for request in requests)
        table.note(f"{what}, p50", "ms", 1000 * times[len(times) // 2])
        table.note(f"{what}, p99", "ms", 1000 * times[int(0.99 * len(times))])


def _applied(table: Table, client: httpx.Client) -> None:
    """New recommenders, one after the other; the runs that go on leave room for them."""
    took, begun, served = [], [], []
    for number in range(_APPLIED):
        name = f"new-{number:03}"
        began = time.monotonic()
        run = _apply(client, name)
        took.append(time.monotonic() - began)
        _until(lambda run=run: client.get(f"/v1/runs/{run}").json()["state"] != "pending")  # type: ignore[misc]
        begun.append(time.monotonic() - began)
    for name in map(name_of, range(_APPLIED)):
        began = time.monotonic()
        before = client.get(f"/v1/recommenders/{name}").json()["serving"]["stable"]
        client.post(f"/v1/recommenders/{name}:rollback", json={"to": 3 - before}).raise_for_status()
        _until(lambda name=name, before=before: _version(client, name) == 3 - before)  # type: ignore[misc]
        served.append(time.monotonic() - began)
    table.note("apply", "s", *took)
    table.note("from apply until its run has started", "s", *begun)
    table.note("from going back until the gateway answers by it", "s", *served)


def _apply(client: httpx.Client, name: str) -> str:
    response = client.post("/v1/recommenders", json=specified(name).document())
    response.raise_for_status()
    return str(response.json()["run"])


def _version(client: httpx.Client, name: str) -> int:
    return int(client.post(f"/v1/recommend/{name}", json={"user": 1}).json()["version"])


def _answers(client: httpx.Client, name: str) -> bool:
    return client.post(f"/v1/recommend/{name}", json={"user": 1}).status_code == 200


def _scrape(table: Table, home: Path) -> None:
    url = json.loads((home / "endpoint.json").read_text())["metrics_url"]
    times, size = [], 0
    for _ in range(5):
        began = time.perf_counter()
        content = httpx.get(url, timeout=120).content
        times.append(time.perf_counter() - began)
        size = len(content)
    table.note("scrape", "s", *times)
    table.note("scrape", "MiB", size / 2**20)
    table.note("scrape", "series", sum(not line.startswith(b"#") for line in content.splitlines()))


def _timed(request: Callable[[], httpx.Response]) -> float:
    began = time.perf_counter()
    request().raise_for_status()
    return time.perf_counter() - began


def _until(probe: Callable[[], bool], patience: float = _PATIENCE) -> None:
    """What isn't so by then isn't waited for any longer: the figure is what it takes at least."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with suppress(httpx.HTTPError):
            if probe():
                return
        time.sleep(0.02)
    Console().print(f"not so within {patience:g} s")


def _said(home: Path) -> Any:
    return json.loads((home / SAID).read_text())


@contextmanager
def _platform(home: Path, url: str) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    data = home.parent / "data"
    data.mkdir()
    for name in ("ratings.csv", "movies.csv"):
        (data / name).write_text("userId,movieId,rating,timestamp\n")
    command = [sys.executable, "-m", "benchmarks.many_platform", "--home", str(home)]
    settings = {"EYAS_DATABASE_URL": url, "EYAS_DATA_ROOTS": str(data), "EYAS_MAX_RUNS": "100", "EYAS_CONTROL_RATE": "0"}
    with (home.parent / "log.txt").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)  # noqa: S603
    try:
        while not (home / "endpoint.json").exists():
            if process.poll() is not None:
                raise SystemExit(f"the platform ended with {process.returncode}: {(home.parent / 'log.txt').read_text()[-2000:]}")
            time.sleep(0.05)
        address = json.loads((home / "endpoint.json").read_text())["url"]
        token = (home / "token").read_text().strip()
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=120) as client:
            yield client, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


if __name__ == "__main__":
    raise SystemExit(main())
