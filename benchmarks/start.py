"""How long the embedded platform takes to be ready, and what it holds in memory while idle, process by process."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import httpx
import psutil
from rich.console import Console

from benchmarks.report import Row, publish

_IDLE_SECONDS = 5.0
_DEMO_HOME = Path("var/demo/home")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs: int = parser.parse_args().runs
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        rows += _case("empty home", Path(folder) / "empty", runs)
        if _DEMO_HOME.exists():
            shutil.copytree(_DEMO_HOME, Path(folder) / "demo", ignore=shutil.ignore_patterns("lock", "endpoint.json"))
            rows += _case("after make demo", Path(folder) / "demo", runs)
        else:
            Console().print("no home of `make demo` here: run it first to measure a platform that serves")
    publish("start", rows)
    return 0


def _case(case: str, home: Path, runs: int) -> list[Row]:
    starts: list[float] = []
    memory: dict[str, list[float]] = defaultdict(list)
    _once(home)  # the first start migrates and lays out backends
    for _ in range(runs):
        seconds, resident = _once(home)
        starts.append(seconds)
        for process, mebibytes in resident.items():
            memory[process].append(mebibytes)
    started = Row(case, "eyas", "time to ready", "s", starts)
    return [started, *(Row(case, f"eyas: {name}", "resident memory", "MiB", values) for name, values in sorted(memory.items()))]


def _once(home: Path) -> tuple[float, dict[str, float]]:
    (home / "endpoint.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "services.cli.main", "up", "--home", str(home), "--port", "0", "--metrics-port", "0"]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        while not _is_ready(home):
            if process.poll() is not None:
                raise SystemExit(f"the platform ended with {process.returncode}: run `eyas up --home {home}` to see why")
            time.sleep(0.01)
        seconds = time.monotonic() - began
        time.sleep(_IDLE_SECONDS)
        return seconds, _resident(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _is_ready(home: Path) -> bool:
    try:
        endpoint = json.loads((home / "endpoint.json").read_text())
        return httpx.get(f"{endpoint['url']}/readyz").status_code == 200
    except (FileNotFoundError, httpx.TransportError):
        return False


def _resident(pid: int) -> dict[str, float]:
    platform = psutil.Process(pid)
    found: dict[str, float] = defaultdict(float)
    found["platform"] = platform.memory_info().rss / 2**20
    for child in platform.children(recursive=True):
        found[child.name()] += child.memory_info().rss / 2**20
    found["all"] = sum(found.values())
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())
