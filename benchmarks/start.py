"""How long the embedded platform takes to be ready, and what it holds in memory while idle, process by process."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import httpx
import psutil

from benchmarks.report import Row, publish

_IDLE_SECONDS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        home = Path(folder) / "home"
        starts: dict[str, list[float]] = defaultdict(list)
        memory: dict[str, list[float]] = defaultdict(list)
        for number in range(runs + 1):
            seconds, resident = _once(home)
            starts["first start of a home" if number == 0 else "later start"].append(seconds)
            for process, mebibytes in resident.items():
                memory[process].append(mebibytes)
    rows = [Row(case, "eyas", "time to ready", "s", values) for case, values in starts.items()]
    rows += [Row("idle", f"eyas: {process}", "resident memory", "MiB", values) for process, values in sorted(memory.items())]
    publish("start", rows)
    return 0


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
