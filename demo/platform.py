"""Embedded platform as a child process: fresh home, one log file, and a check that no process remains."""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from demo.client import Client

START_SECONDS = 90.0
STOP_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


class PlatformError(Exception):
    """The platform failed to start or to stop."""


class Platform:
    """Context manager that runs `eyas up` with its own home."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.data = folder / "data"
        self.log = folder / "platform.log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Platform:
        self.refuse_if_running()
        shutil.rmtree(self.home, ignore_errors=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._output = self.log.open("wb")
        command = [sys.executable, "-m", "services.cli.main", "up", "--home", str(self.home), "--data-root", str(self.data)]
        self._process = subprocess.Popen(  # noqa: S603
            [*command, "--port", "0", "--metrics-port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
        try:
            self.url = self._wait_for_endpoint()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        fault = self.stop()
        if fault and error is None:
            raise PlatformError(fault)

    def refuse_if_running(self) -> None:
        """Raises if another platform uses the home, because clearing the home would remove its state."""
        try:
            pid = int(json.loads((self.home / "endpoint.json").read_text())["pid"])
            command = psutil.Process(pid).cmdline()
        except (OSError, ValueError, KeyError, psutil.Error):
            return
        if "services.cli.main" in command:
            raise PlatformError(f"another demo's platform (process {pid}) uses {self.home}: wait for its end or stop it")

    def client(self) -> Client:
        return Client(self.url, self._token())

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> str:
        """Stops the platform with SIGTERM. Returns the fault, or an empty string."""
        process, self._process = self._process, None
        if process is None:
            return ""
        family = _family(process.pid)
        fault = "" if process.poll() is None else f"the platform ended early with exit code {process.returncode}; see {self.log}"
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            fault = f"the platform did not stop within {STOP_SECONDS:.0f} s of SIGTERM and was killed; see {self.log}"
        _, alive = psutil.wait_procs(family, timeout=5)
        for child in alive:
            child.kill()
        if self._output:
            self._output.close()
        if not fault and alive:
            fault = f"the platform left processes behind: {', '.join(str(child.pid) for child in alive)}; see {self.log}"
        if not fault and process.returncode != 0:
            fault = f"the platform ended with exit code {process.returncode}; see {self.log}"
        return fault

    def _token(self) -> str:
        return (self.home / "token").read_text().strip()

    def _wait_for_endpoint(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.alive():
                raise PlatformError(f"the platform ended during its start: {_last_line(self.log)}; see {self.log}")
            url = _endpoint(self.home)
            if url and (self.home / "token").exists():
                with Client(url, self._token()) as client:
                    if client.ready():
                        return url
            time.sleep(0.2)
        raise PlatformError(f"the platform was not ready within {START_SECONDS:.0f} s; see {self.log}")


def _endpoint(home: Path) -> str | None:
    try:
        return str(json.loads((home / "endpoint.json").read_text())["url"])
    except (OSError, ValueError, KeyError):
        return None


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


def _die_with_parent() -> None:
    """Runs in the child: the kernel sends SIGTERM when the demo dies for any reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
