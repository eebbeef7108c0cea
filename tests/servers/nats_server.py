"""A real nats-server with JetStream, as a process of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.servers.platform_process import until
from tests.servers.ports import free_port

MISSING = "no nats-server is installed, so events on NATS were not tried: apt-get install --no-install-recommends nats-server"


def nats_server() -> str:
    """The program; skips where it is missing, and fails in CI, which installs it."""
    found = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found


class NatsServer:
    """On one port of its own, so that it can be killed and come back."""

    def __init__(self, folder: Path, user: str | None = None, password: str | None = None) -> None:
        self._program = nats_server()
        self._folder = folder
        self.storage: int | None = None
        """Bytes of the server's storage from its next start; None: 75% of the free disk space."""
        self.port = free_port()
        self._access = ["--user", user, "--pass", password] if user and password else []
        self.url = f"nats://{f'{user}:{password}@' if user else ''}127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        command = [self._program, "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", str(self._folder), *self._access]
        if self.storage is not None:
            config = self._folder / "server.conf"
            config.write_text(f"jetstream {{ max_file_store: {self.storage} }}\n")
            command += ["-c", str(config)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        until("nats-server listens", self._listens)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
