"""A platform of one's own: started as a child process on free ports, driven over HTTP, ended whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

T = TypeVar("T")


def until(what: str, probe: Callable[[], T | None], seconds: float = 60) -> T:
    """Waits for a condition; says what it waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = probe()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds:g} s")


class PlatformProcess:
    """`eyas up` on a home; may be killed and started again."""

    def __init__(
        self,
        home: Path,
        data: Path,
        ports: Sequence[str] = ("--port", "0", "--metrics-port", "0"),
        settings: Mapping[str, str] = {},
    ) -> None:
        self.home = home
        self.data = data
        self.ports = ports
        self._environment = {**os.environ, **settings}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PlatformProcess:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()

    @property
    def log(self) -> str:
        return (self.home.parent / "platform.log").read_text()

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "endpoint.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "services.cli.main", "up", "--home", str(self.home), "--data-root", str(self.data)]
        with (self.home.parent / "platform.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.ports],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
            )
        until("the platform is ready", self._is_ready)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the platform ended:\n{self.log}"
        try:
            endpoint = json.loads((self.home / "endpoint.json").read_text())
            headers = {"Authorization": f"Bearer {(self.home / 'token').read_text()}"}
            self.metrics_url = endpoint["metrics_url"]
            self.client = httpx.Client(base_url=endpoint["url"], headers=headers, timeout=20)
        except FileNotFoundError:
            return False
        try:
            ready = self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            ready = False
        if not ready:
            self.client.close()
        return ready

    def children(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """kill -9, and waits until its children are gone with it."""
        _, alive = psutil.wait_procs(self.strike(), timeout=30)
        assert not alive, f"outlived the platform: {alive}"

    def strike(self) -> list[psutil.Process]:
        """kill -9 of it alone. Returns the children that it had: what doesn't end by itself is for the next start to end."""
        assert self.process is not None
        children = self.children()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.client.close()
        return children

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        children = self.children()
        self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        self.client.close()
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive, f"outlived the platform: {alive}"
        return code

    def get(self, path: str, **params: Any) -> Any:
        return checked(self.client.get(path, params=params))

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        return checked(self.client.post(path, json=body if body is not None else {}, params=params))

    def wait_for_run(self, run: str, *states: str, seconds: float = 180) -> Any:
        def probe() -> Any:
            found = self.get(f"/v1/runs/{run}")
            ended = found["state"] in ("registered", "rejected", "failed", "cancelled")
            assert not ended or found["state"] in states, f"{found['state']}: {found['reason']}\n{self.log}"
            return found if found["state"] in states else None

        return until(f"run {run} is {' or '.join(states)}", probe, seconds)

    def wait_for_rollout(self, rollout: str, *states: str, seconds: float = 120) -> Any:
        def probe() -> Any:
            found = self.get(f"/v1/rollouts/{rollout}")
            return found if found["state"] in states else None

        return until(f"rollout {rollout} is {' or '.join(states)}", probe, seconds)


def checked(response: httpx.Response) -> Any:
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.status_code} {response.text}"
    return response.json()


def leftovers(prefix: str) -> list[str]:
    """Shared memory of a Triton that is gone."""
    return [path.name for path in Path("/dev/shm").iterdir() if path.name.startswith(prefix)]
