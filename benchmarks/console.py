"""The console's pages with few and with many rows stored: how long each takes, its bytes, and its statements to the database.

    python -m benchmarks.console [--runs 10 1000 100000] [--recommenders 1 10 100 1000] [--databases sqlite postgresql] [--requests 100]

A real platform process over HTTP, asked as browsers ask, one page after the other; a fake model server and stages that end at once stand
behind their ports. Runs: of one recommender, ended, with seven lines of history each. Recommenders: each serves, with a run and a rollout.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from rich.console import Console

from benchmarks.control_api import NAME, fill_runs
from benchmarks.databases import databases
from benchmarks.many_platform import SAID
from benchmarks.many_world import fill, name_of
from benchmarks.report import Row, publish
from shared.artifacts import FsspecArtifacts

_WARM = 5
_PATIENCE = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="*", default=[10, 1_000, 100_000])
    parser.add_argument("--recommenders", type=int, nargs="*", default=[1, 10, 100, 1_000])
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    parser.add_argument("--requests", type=int, default=100)
    given = parser.parse_args()
    rows: list[Row] = []
    with databases() as fresh:
        for database, count in itertools.product(given.databases, given.runs):
            Console().print(f"{database}: {count:,} runs")
            url = fresh(database)
            ids = fill_runs(url, count)
            rows += _measured(f"{count} runs stored", database, url, _of_runs(ids), given.requests)
            publish("console", rows)
        for database, count in itertools.product(given.databases, given.recommenders):
            Console().print(f"{database}: {count:,} recommenders")
            rows += _many(database, fresh(database), count, given.requests)
            publish("console", rows)
    return 0


def _many(database: str, url: str, count: int, requests: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="eyas-console-") as folder:
        fill(url, FsspecArtifacts(str(Path(folder) / "home" / "artifacts")), count)
        pages = {
            "home": ["/"],
            "recommender": [f"/recommenders/{name_of(number)}" for number in range(min(count, 50))],
            "runs": ["/runs"],
            "runs of one": [f"/recommenders/{name_of(number)}/runs" for number in range(min(count, 50))],
            "drift": [f"/recommenders/{name_of(number)}/drift" for number in range(min(count, 50))],
            "serving": ["/serving"],
            "settings": ["/settings"],
        }
        return _measured(f"{count} recommenders", database, url, pages, requests, Path(folder) / "home")


def _of_runs(ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    chance = random.Random(1)  # noqa: S311
    some = [chance.choice(ids) for _ in range(50)]
    return {
        "home": ["/"],
        "recommender": [f"/recommenders/{NAME}"],
        "runs": ["/runs"],
        "runs, second page": ["/runs?cursor="],
        "runs, rejected since a day": ["/runs?state=rejected&since=2026-10-01"],
        "runs, not ended": ["/runs?state=active"],
        "runs, dead letters": ["/runs?dead=1"],
        "runs of one": [f"/recommenders/{NAME}/runs"],
        "run": [f"/runs/{id}" for id in some],
        "compare": [f"/runs/{id}/compare?with={ids[0]}" for id in some],
    }


def _measured(case: str, database: str, url: str, pages: Mapping[str, Sequence[str]], requests: int, home: Path | None = None) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="eyas-console-") as folder:
        at = home or Path(folder)
        with _platform(at, url) as client:
            for page, paths in pages.items():
                found = _asked(client, at, [_cursor(client, path) for path in paths], requests)
                if found is None:
                    continue  # a page that isn't there yet
                for metric, unit, value in found:
                    rows.append(Row(case, f"eyas on {database}", f"{page}: {metric}", unit, [value]))
    return rows


def _cursor(client: httpx.Client, path: str) -> str:
    """The next page of the list, as its link says it."""
    if not path.endswith("cursor="):
        return path
    text = client.get(path.partition("?")[0]).text
    at = text.find("cursor=")
    return path + text[at + 7 : text.index('"', at)] if at > 0 else path.partition("?")[0]


def _asked(client: httpx.Client, home: Path, paths: Sequence[str], requests: int) -> list[tuple[str, str, float]] | None:
    first = client.get(paths[0])
    if first.status_code == 404:
        return None
    first.raise_for_status()
    for path in itertools.islice(itertools.cycle(paths), _WARM):
        client.get(path).raise_for_status()
    times, size = [], 0
    before = _statements(home)
    for path in itertools.islice(itertools.cycle(paths), requests):
        began = time.perf_counter()
        answer = client.get(path)
        times.append(1000 * (time.perf_counter() - began))
        answer.raise_for_status()
        size = max(size, len(answer.content))
    sent = (_statements(home) - before) / requests
    times.sort()
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, int(0.99 * len(times)))]
    return [("p50", "ms", p50), ("p99", "ms", p99), ("bytes", "", float(size)), ("statements", "", sent)]


def _statements(home: Path) -> float:
    """Of requests alone, as the process counts them; what it says is of the last half second, so it is given time to say it all."""
    said = home / SAID
    now = json.loads(said.read_text())["at"] if said.exists() else 0.0
    seen = 0
    began = time.monotonic()
    while seen < 2 and time.monotonic() - began < 60:
        time.sleep(0.1)
        found: Any = json.loads(said.read_text()) if said.exists() else {"at": now}
        if found["at"] > now:
            now, seen = found["at"], seen + 1
    return float(json.loads(said.read_text())["statements"].get("requests", 0))


@contextmanager
def _platform(home: Path, url: str) -> Iterator[httpx.Client]:
    """Signed in, as a browser is."""
    command = [sys.executable, "-m", "benchmarks.many_platform", "--home", str(home)]
    process = subprocess.Popen(  # noqa: S603
        command, env={**os.environ, "EYAS_DATABASE_URL": url}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        began = time.monotonic()
        while not (home / "endpoint.json").exists():
            if process.poll() is not None or time.monotonic() - began > _PATIENCE:
                raise SystemExit(f"the platform didn't come up (it ended with {process.returncode})")
            time.sleep(0.05)
        address = json.loads((home / "endpoint.json").read_text())["url"]
        token = (home / "token").read_text().strip()
        cookies = {f"eyas-{urlsplit(address).port}": token}
        with httpx.Client(base_url=address, cookies=cookies, timeout=120) as client:
            while client.get("/readyz").status_code != 200 and time.monotonic() - began < _PATIENCE:
                time.sleep(0.2)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


if __name__ == "__main__":
    raise SystemExit(main())
