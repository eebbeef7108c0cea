"""A real tritonserver as a process of this machine: started, watched, started again, and ended without a trace.

It binds loopback unless told otherwise, dies with its owner (the shim), and belongs to a process group of its own, so its Python
stubs can be ended with it. Several may live side by side: each has its own folder, ports and mark.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from services.triton.client import KEY, Client
from services.triton.residue import new_mark, sweep, sweep_deserted
from services.triton.wheel import find_wheel
from shared.domain.errors import Unavailable

# Run by its path, as a program: the adapters don't import each other.
SHIM = Path(__file__).parents[1] / "shim.py"
_TRIES = 3
_POLL = 0.02
_TIDY = 60.0


class EmbeddedTriton:
    """Owns one tritonserver. `home` holds its repository (`models/`), its backends and its log.

    `ports` are those of gRPC and of the metrics; two free ones if none are given. With a `key`, whoever doesn't say it may ask for
    inferences and look, but neither load nor unload.
    """

    def __init__(
        self, home: Path, *, start_timeout: float = 60.0, listen: str = "127.0.0.1", ports: tuple[int, int] | None = None, key: str = ""
    ) -> None:
        self.key = key
        self.home = home.absolute()
        self.repository = self.home / "models"
        self.log = self.home / "triton.log"
        self.generation = 0
        """Rises with each start: what was loaded belongs to one generation."""
        self._timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = new_mark()
        self._listen = listen
        self._given = ports
        self._ports = ports or (0, 0)
        self._lock = threading.RLock()
        self._tidied = time.monotonic()
        # The kernel ends the server when the thread that forked it ends: one thread, as old as this object.
        self._nursery = ThreadPoolExecutor(max_workers=1, thread_name_prefix="triton")

    @property
    def address(self) -> str:
        return f"{self._near}:{self._ports[0]}"

    @property
    def metrics_url(self) -> str:
        return f"http://{self._near}:{self._ports[1]}/metrics"

    @property
    def _near(self) -> str:
        """Where this process reaches it."""
        return "127.0.0.1" if self._listen == "0.0.0.0" else self._listen  # noqa: S104  it is compared, not bound

    @property
    def ports(self) -> tuple[int, int]:
        """Of gRPC and of the metrics."""
        return self._ports

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it and waits until it answers; Unavailable with the reason when it can't. Started already: nothing."""
        with self._lock:
            if self.alive:
                return
            wheel = find_wheel()
            sweep()
            self._clear()
            self.repository.mkdir(parents=True, exist_ok=True)
            wheel.lay_out(self.home / "backends")
            for _ in range(_TRIES):  # a port that was free may be taken when the server gets there
                self._ports = self._given or _free_ports()
                written = self.log.stat().st_size if self.log.exists() else 0
                self._process = self._nursery.submit(self._spawn, wheel.server, wheel.environment()).result()
                if self._answers():
                    self.generation += 1
                    return
                said = self._said_since(written)
                self._clear()
                if "already in use" not in said:
                    break
            raise Unavailable(f"the embedded Triton doesn't start: {_reason(said)} (the whole story is in {self.log})")

    def ensure_running(self) -> bool:
        """Starts it again if it died. True: it did, and what was loaded is gone."""
        with self._lock:
            if self._process is None or self.alive:
                self._tidy()
                return False
            self.start()
            return True

    def vouch(self) -> None:
        """Nobody else waits for its versions."""

    def stop(self, grace: float = 10.0) -> None:
        """TERM, then KILL for the whole group after `grace` seconds; no process and no shared memory is left. For good."""
        with self._lock:
            if self.alive and self._process is not None and grace > 0:
                self._process.terminate()  # the server alone: it ends its stubs itself
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(grace)
            self._clear()
            self._process = None
            self._nursery.shutdown(wait=True)

    def memory(self) -> int:
        """Resident bytes of the server and its stubs."""
        total = 0
        for one in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
        return total

    def mapped(self, name: str) -> int | None:
        """Of those bytes, what is there of files of that name that lie in memory page by page; None where nobody has one so."""
        found: list[int] = []
        for one in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [part.rss for part in one.memory_maps() if Path(part.path).name == name]
        return sum(found) if found else None

    def _processes(self) -> list[psutil.Process]:
        try:
            server = psutil.Process(self.pid)
            return [server, *server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _spawn(self, server: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
        grpc, metrics = self._ports
        with self.log.open("ab") as stream:
            return subprocess.Popen(  # noqa: S603  our own wheel's server
                [
                    *(sys.executable, "-I", str(SHIM), "--private", str(os.getpid()), str(server)),
                    f"--model-repository={self.repository}",
                    f"--backend-directory={self.home / 'backends'}",
                    f"--backend-config=python,shm-region-prefix-name={self._mark}",
                    "--model-control-mode=explicit",
                    "--disable-auto-complete-config",  # our configurations are complete: a load takes 0.35 s, not 1.4 s
                    "--strict-readiness=false",
                    "--exit-timeout-secs=5",
                    *([f"--grpc-restricted-protocol=model-repository:{KEY}={self.key}"] if self.key else []),
                    "--allow-http=false",
                    "--allow-gpu-metrics=false",
                    f"--grpc-address={self._listen}",
                    f"--grpc-port={grpc}",
                    f"--metrics-address={self._listen}",
                    f"--metrics-port={metrics}",
                ],
                cwd=self.home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        """Waits until it is ready; False if it ended, or took too long."""
        deadline = time.monotonic() + self._timeout
        while self.alive and time.monotonic() < deadline:
            if all(_listens(self._near, port) for port in self._ports):
                client = Client(self.address, self.metrics_url)
                try:
                    if client.ready():
                        return self.alive
                finally:
                    client.close()
            time.sleep(_POLL)
        return False

    def _tidy(self) -> None:
        if time.monotonic() - self._tidied > _TIDY:
            self._tidied = time.monotonic()
            sweep_deserted(self._mark)

    def _clear(self) -> None:
        """Ends the group, stubs included, and what carries our mark."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        sweep(self._mark)

    def _said_since(self, offset: int) -> str:
        if self.alive:
            return f"no answer within {self._timeout:g} s"
        with self.log.open("rb") as stream:
            stream.seek(offset)
            return stream.read(1 << 16).decode(errors="replace")


def disposable(home: Path) -> EmbeddedTriton:
    """A server for one examination: its folder begins empty."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return EmbeddedTriton(home)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def _reason(said: str) -> str:
    """The line that tells most: an error of the loader's, of the shim's or of Triton's, or else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [
        line for line in lines if any(word in line.lower() for word in ("error", "shim:", "failed", "cannot open")) and "NVML" not in line
    ]
    return (telling or lines or ["it ended without a word"])[-1][:400]
