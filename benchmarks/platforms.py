"""Platforms for measurements over HTTP: a process with a client, and the API's databases after months of use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

UP = (sys.executable, "-m", "services.cli.main", "up", "--port", "0", "--metrics-port", "0")
FAKE = (sys.executable, "-m", "benchmarks.many_platform")
"""A model server and stages that end at once stand behind their ports."""


@dataclass(frozen=True)
class Running:
    home: Path
    began: float
    """When it was started, on the monotonic clock."""
    process: psutil.Process
    client: httpx.Client
    """With the token of the operator."""
    url: str
    metrics_url: str

    def resident_memory(self) -> float:
        return float(self.process.memory_info().rss / 2**20)

    def is_ready(self) -> bool:
        with suppress(httpx.HTTPError):
            return self.client.get("/readyz").status_code == 200
        return False

    def token(self) -> str:
        return (self.home / "token").read_text().strip()


@contextmanager
def running(home: Path, command: Sequence[str] = UP, settings: Mapping[str, str] = {}, patience: float = 600) -> Iterator[Running]:
    """Starts a platform on a home; yields as soon as it listens, which is before it is ready."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "endpoint.json").unlink(missing_ok=True)
    log, began = home.parent / f"{home.name}.log", time.monotonic()
    with log.open("w") as stream:
        process = subprocess.Popen([*command, "--home", str(home)], env={**os.environ, **settings}, stdout=stream, stderr=stream)  # noqa: S603
    try:
        while not (home / "endpoint.json").exists():
            if process.poll() is not None or time.monotonic() - began > patience:
                raise SystemExit(f"the platform did not start (status {process.returncode}): {log.read_text()[-2000:]}")
            time.sleep(0.01)
        endpoint = json.loads((home / "endpoint.json").read_text())
        headers = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}
        with httpx.Client(base_url=endpoint["url"], headers=headers, timeout=120) as client:
            yield Running(home, began, psutil.Process(process.pid), client, endpoint["url"], endpoint["metrics_url"])
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(120)
        process.kill()
