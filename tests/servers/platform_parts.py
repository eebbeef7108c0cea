"""The platform in separate processes, as a cluster runs it: Tritons, control planes and a gateway on shared folders."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from services.triton.certificates import Certificates
from tests.servers.platform_process import checked, until
from tests.servers.ports import free_ports
from tests.servers.shared_memory import Owners
from tests.servers.triton_certificates import Authority
from tests.support.platform_world import write_world
from tests.support.secret_files import write_secret

TOKEN = "a-token-of-the-test-that-is-long-enough"


class Part:
    """One process; its log tells where it listens."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, **environment: str) -> None:
        self.name = name
        self.command = [sys.executable, "-m", *command]
        self.log = folder / f"{name}.log"
        self.environment = os.environ | environment
        self._owners = Owners()
        self.start()

    def start(self) -> None:
        self._offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def children(self) -> list[psutil.Process]:
        found = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self._owners.add(self.process.pid, *(child.pid for child in found))
        return found

    def shared_memory(self) -> set[str]:
        """Names in /dev/shm that belong to it and to the stages that it has run."""
        return self._owners.regions()

    def said(self) -> str:
        return self.log.read_text()[self._offset :]

    def ready(self) -> re.Match[str]:
        def probe() -> re.Match[str] | None:
            assert self.process.poll() is None, f"{self.name} ended:\n{self.said()}"
            return re.search(r"(?:platform: ready .* url=|triton: ready host=)(\S+)", self.said())

        return until(f"{self.name} is ready", probe, 180)

    def url(self) -> str:
        return self.ready()[1]

    def stop(self) -> int:
        children = self.children()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive, f"outlived {self.name}: {alive}"
        return code


def triton_part(name: str, folder: Path, home: Path, ports: Sequence[int], certificates: Certificates, *more: str) -> Part:
    """A Triton of its own that demands certificates; `ports` are those of gRPC, metrics and health."""
    options = (f"--{option}={port}" for option, port in zip(("grpc", "metrics", "health"), ports, strict=True))
    return Part(name, ["services.triton.serve", f"--home={home}", f"--tls={certificates.folder}", *options, *more], folder)


class Parts:
    def __init__(self, folder: Path, database: str | None = None, tritons: int = 1, **more: str) -> None:
        """On a database of its own, there are two control planes, each with a home; several Tritons have a home each, below that of one."""
        self.data = folder / "data"
        home = folder / "home"
        write_world(self.data)
        write_secret(folder / "token", f"{TOKEN}\n")
        self.authority = Authority.create(folder / "certificates")
        places = [free_ports(3) for _ in range(tritons)]
        self.tritons = []
        for number, (grpc, metrics, health) in enumerate(places, 1):
            own = home / "triton" / (f"127.0.0.1_{grpc}" if tritons > 1 else "")
            self.tritons.append(
                triton_part(f"triton-{number}", folder, own, (grpc, metrics, health), self.authority.server(), "--rotate-after=1")
            )
        self.triton, self.healths = self.tritons[0], [f"http://127.0.0.1:{health}" for *_, health in places]
        shared = {
            "EYAS_HOME": str(home),
            "EYAS_DATABASE_URL": database or f"sqlite:///{home}/eyas.db",
            "EYAS_ARTIFACTS_URL": str(home / "artifacts"),
            "EYAS_TRITON_HOME": str(home / "triton"),
            **more,
            "EYAS_TRITON": ",".join(f"127.0.0.1:{grpc}" for grpc, *_ in places),
            "EYAS_TRITON_TLS": str(self.authority.client().folder),
            "EYAS_TOKEN_FILE": str(folder / "token"),
            "EYAS_DATA_ROOTS": str(self.data),
        }
        serve = ["services.cli.main", "serve", "--port", "0", "--metrics-port", "0", "--role"]
        self.control = Part("control", [*serve, "control"], folder, **shared, EYAS_REPLICA="control-1")
        self.gateway = Part("gateway", [*serve, "gateway"], folder, **shared, EYAS_REPLICA="gateway-1")
        self.parts: tuple[Part, ...] = (self.gateway, self.control, *self.tritons)
        if database:
            other = shared | {"EYAS_HOME": str(folder / "other")}
            self.other = Part("other", [*serve, "control"], folder, **other, EYAS_REPLICA="control-2")
            self.parts = (self.gateway, self.control, self.other, *self.tritons)

    def client(self, part: Part) -> httpx.Client:
        return httpx.Client(base_url=part.url(), headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)

    def recommend(self, user: int = 3) -> dict[str, Any]:
        with self.client(self.gateway) as client:
            answer: dict[str, Any] = checked(client.post("/v1/recommend/movies", json={"user": user, "k": 5}))
            return answer

    def wait_for_an_answer_of_the_model(self) -> dict[str, Any]:
        def probe() -> dict[str, Any] | None:
            with self.client(self.gateway) as client:
                answer = client.post("/v1/recommend/movies", json={"user": 3, "k": 5})
            if answer.status_code == 503:  # the gateway hasn't read the new route yet
                return None
            found: dict[str, Any] = checked(answer)
            return found if found["fallback"] is None else None

        return until("the model answers", probe)
