"""The API of a real platform process over HTTP with 10 to 100,000 runs stored: list and get, p50 and p99, and resident memory."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
from sqlalchemy import insert

from benchmarks.control_loop import specified
from benchmarks.report import Row
from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.recommenders import SqlRecommenders
from services.store.tables import history, resources
from shared.contracts.codec import encode
from shared.contracts.records import RunSpec

NAME = "films"
_REQUESTS = 400
_PIECE = 5_000
_STATES = ("registered", "failed", "rejected", "cancelled")


def answers(database: str, url: str, stored: int) -> list[Row]:
    ids = fill_runs(url, stored)
    case, contender = f"{stored} runs stored", f"eyas on {database}"
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as home, _platform(Path(home), {"EYAS_DATABASE_URL": url}) as (client, pid):
        chance = random.Random(1)  # noqa: S311
        found = {
            "list, newest 10": _timed(client, [f"/v1/recommenders/{NAME}/runs?limit=10"] * _REQUESTS),
            "get": _timed(client, [f"/v1/runs/{chance.choice(ids)}" for _ in range(_REQUESTS)]),
        }
        memory = psutil.Process(pid).memory_info().rss / 2**20
    rows = []
    for what, times in found.items():
        times.sort()
        rows.append(Row(case, contender, f"{what}, p50", "ms", [times[len(times) // 2]]))
        rows.append(Row(case, contender, f"{what}, p99", "ms", [times[int(0.99 * len(times))]]))
    return [*rows, Row(case, contender, "resident memory", "MiB", [memory])]


def fill_runs(url: str, count: int) -> Sequence[str]:
    """Runs that have ended, with a history of seven lines each, as a year of use would leave them."""
    engine = open_engine(url)
    upgrade(engine)
    start = datetime.now(UTC) - timedelta(days=365)
    spec = specified(NAME)
    SqlRecommenders(engine).put(spec, start, "bench")
    document = encode(RunSpec, RunSpec(spec.document(), 1, "full", "a benchmark", None, "bench", False, ""))
    ids = [f"r{number:010}" for number in range(count)]
    for first in range(0, count, _PIECE):
        rows, lines = [], []
        for number, id in enumerate(ids[first : first + _PIECE], first):
            at = start + timedelta(minutes=5 * number)
            state = _STATES[number % len(_STATES)]
            row = {"kind": "run", "id": id, "recommender": NAME, "spec": document, "status": {"state": state, "reason": "it ended"}}
            rows.append({**row, "state": state, "revision": 7, "finished": True, "created_at": at, "due_at": at, "priority": 0})
            line = {"kind": "run", "id": id, "at": at, "source": "pending", "target": "etl", "reason": "", "actor": "eyas"}
            lines += [line] * 7
        with engine.begin() as connection:
            connection.execute(insert(resources), rows)
            connection.execute(insert(history), lines)
    engine.dispose()
    return ids


@contextmanager
def _platform(home: Path, environment: Mapping[str, str]) -> Iterator[tuple[httpx.Client, int]]:
    command = [sys.executable, "-m", "services.cli.main", "up", "--home", str(home), "--port", "0", "--metrics-port", "0"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        while not (home / "endpoint.json").exists():
            if process.poll() is not None:
                raise SystemExit(f"the platform ended with {process.returncode}")
            time.sleep(0.05)
        url = json.loads((home / "endpoint.json").read_text())["url"]
        token = (home / "token").read_text().strip()
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
            yield client, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _timed(client: httpx.Client, paths: Sequence[str]) -> list[float]:
    """Milliseconds of each request, one after the other, after some that warm up."""
    times = []
    for number, path in enumerate([*paths[:20], *paths]):
        began = time.perf_counter()
        client.get(path).raise_for_status()
        if number >= 20:
            times.append(1000 * (time.perf_counter() - began))
    return times
