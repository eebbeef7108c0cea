"""A real redis-server, as a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.servers.platform_process import until
from tests.servers.ports import free_port

MISSING = "no redis-server is installed, so features in Redis were not tried: apt-get install --no-install-recommends redis-server"


def redis_server() -> str:
    """The program; skips where it is missing, and fails in CI, which installs it."""
    found = shutil.which("redis-server")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found


class RedisServer:
    """On one port of its own, so that it can be killed, come back, and be stopped in between. It keeps nothing on disk."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        self._program = redis_server()
        self._folder = folder
        self.port = free_port()
        self._access = ["--requirepass", password] if password else []
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        settings = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", str(self._folder), *self._access]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *settings], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        until("redis-server listens", self._listens)

    def stand_still(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
