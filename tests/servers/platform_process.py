"""A platform of one's own: started as a child process on free ports, driven over HTTP, ended whatever happens."""

from __future__ import annotations

import contextlib
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

from tests.servers.shared_memory import Owners

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
        program: Sequence[str] = (sys.executable, "-m", "services.cli.main"),
    ) -> None:
        self.home = home
        self.data = data
        self.ports = ports
        self.program = program
        self._environment = {**os.environ, **settings}
        self.process: subprocess.Popen[bytes] | None = None
        self._owners = Owners()

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
        command = [*self.program, "up", "--home", str(self.home), "--data-root", str(self.data)]
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
        found = psutil.Process(self.process.pid).children(recursive=True)
        self._owners.add(self.process.pid, *(child.pid for child in found))
        return found

    def children_with(self, word: str) -> list[psutil.Process]:
        """Those with it in their command line; not the shim that starts them."""
        found = [(child, command_line(child)) for child in self.children()]
        return [child for child, line in found if word in line and "shim.py" not in line]

    def kill_child(self, word: str) -> bool:
        """kill -9 of one of them; False if there is none."""
        for child in self.children_with(word):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                return True
        return False

    def listening(self) -> set[tuple[str, int]]:
        """Addresses and ports of the platform and of its children."""
        assert self.process is not None
        found = [one.net_connections("tcp") for one in (psutil.Process(self.process.pid), *self.children())]
        return {(one.laddr.ip, one.laddr.port) for connections in found for one in connections if one.status == psutil.CONN_LISTEN}

    def shared_memory(self) -> set[str]:
        """Names in /dev/shm that belong to the platform and to the stages that it has run."""
        return self._owners.regions()

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

    def model_answer(self, name: str = "movies", version: int | None = None, user: int = 1) -> dict[str, Any] | None:
        """An answer that the model has ordered, of that version or of any; None while there is none."""
        response = self.client.post(f"/v1/recommend/{name}", json={"user": user})
        if not response.is_success or response.json()["fallback"] is not None:
            return None
        answer: dict[str, Any] = response.json()
        return answer if version in (None, answer["version"]) else None

    def wait_for_run(self, run: str, *states: str, seconds: float = 180) -> Any:
        def probe() -> Any:
            self.children()  # a stage may own a Triton of its own
            found = self.get(f"/v1/runs/{run}")
            ended = found["state"] in ("registered", "rejected", "failed", "cancelled")
            assert not ended or found["state"] in states, f"{found['state']}: {found['reason']}\n{self.log}"
            return found if found["state"] in states else None

        return until(f"run {run} is {' or '.join(states)}", probe, seconds)

    def promoted(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Applies the spec and waits until the version of its run serves all users; returns the run."""
        run: dict[str, Any] = self.wait_for_run(self.post("/v1/recommenders", spec)["run"], "registered", seconds=280)
        if self.wait_for_rollout(run["rollout"], "canary", "promoted")["state"] == "canary":
            self.post(f"/v1/rollouts/{run['rollout']}:promote")
            self.wait_for_rollout(run["rollout"], "promoted")
        return run

    def wait_for_rollout(self, rollout: str, *states: str, seconds: float = 120) -> Any:
        def probe() -> Any:
            found = self.get(f"/v1/rollouts/{rollout}")
            return found if found["state"] in states else None

        return until(f"rollout {rollout} is {' or '.join(states)}", probe, seconds)


def checked(response: httpx.Response) -> Any:
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.status_code} {response.text}"
    return response.json()


def command_line(process: psutil.Process) -> str:
    """Empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
