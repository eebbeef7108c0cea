"""Real programs of the Prometheus family, each as a process on loopback that is configured by a file and says when it is ready."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml

from tests.servers.platform_process import until
from tests.servers.ports import free_port


def program(package: str, *names: str) -> str:
    """Of that Debian package, by the first of its names that is there."""
    found = next((place for name in names if (place := shutil.which(name))), None)
    if found is None:
        missing = f"no {names[-1]} is installed, so it was not tried: apt-get install --no-install-recommends {package}"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class Daemon:
    """`said`: further words of its command line; its data lie in `folder / "data"`."""

    def __init__(self, command: str, folder: Path, config: dict[str, Any], *said: str) -> None:
        (folder / "config.yml").write_text(yaml.safe_dump(config))
        port = free_port()
        self._name = Path(command).name
        self.url = f"http://127.0.0.1:{port}"
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=10)
        words = [command, f"--config.file={folder / 'config.yml'}", f"--web.listen-address=127.0.0.1:{port}", *said]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        until(f"{self._name} is ready", self._ready)
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def _ready(self) -> bool:
        assert self._process.poll() is None, f"{self._name} has ended: see its log"
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False
