"""A tritonserver as a process of this machine: started, watched, restarted, and ended without residue.

Whoever can connect to a Triton can run code as its user: it loads any Python model from a request. So it listens only on a Unix socket in a
folder that other users cannot enter; over a network (services.triton.serve) it requires certificates.

The server dies with its owner (services/shim.py) and has its own process group, so that its Python stubs end with it. Several servers can
run on one machine: each has its own folder, socket and mark.
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
from dataclasses import dataclass
from pathlib import Path

import psutil

from services.triton.certificates import Certificates
from services.triton.client import KEY, Client
from services.triton.native import find_server, serves_on_gpus
from services.triton.orphan_cleanup import new_mark, sweep, sweep_deserted
from shared.domain.errors import Unavailable

# Run by its path, as a program: adapters do not import each other.
SHIM = Path(__file__).parents[1] / "shim.py"
_POLL = 0.02
_TIDY = 60.0
_SOCKET = "socket/grpc"
"""Relative to the home. Triton appends `:1`, the required port."""
_LONGEST_SOCKET = 107
"""Maximum bytes of a Unix socket's path, a limit of the kernel."""


@dataclass(frozen=True)
class TritonNetwork:
    """Listening addresses of a Triton for other machines."""

    host: str
    grpc: int
    metrics: int
    """Port of the Prometheus metrics: no TLS, open to everybody who can connect; it shows numbers only."""
    key: str = ""
    """Permits changes of the model repository; other clients may only infer and read."""
    certificates: Certificates | None = None

    @property
    def near(self) -> str:
        """The address for clients of this machine."""
        return "127.0.0.1" if self.host == "0.0.0.0" else self.host  # noqa: S104  compared, not bound

    def options(self) -> list[str]:
        return [
            f"--grpc-address={self.host}",
            f"--grpc-port={self.grpc}",
            f"--metrics-address={self.host}",
            f"--metrics-port={self.metrics}",
            *([f"--grpc-restricted-protocol=model-repository:{KEY}={self.key}"] if self.key else []),
            *(self.certificates.server_options() if self.certificates else []),
        ]


class EmbeddedTriton:
    """Owns one tritonserver. `home` holds its repository (`models/`), backends, socket and log."""

    def __init__(self, home: Path, *, start_timeout: float = 60.0, network: TritonNetwork | None = None) -> None:
        self.key = network.key if network else ""
        self.certificates = network.certificates if network else None
        self.home = home.absolute()
        self.repository = self.home / "models"
        self.log = self.home / "triton.log"
        self.generation = 0
        """Rises with each start: a start has nothing loaded."""
        self._timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = new_mark()
        self._network = network
        self._folder: int | None = None
        """Descriptor of the socket's folder, if the path is too long for a socket."""
        self._lock = threading.RLock()
        self._tidied = time.monotonic()
        # The kernel kills the server when the thread that forked it ends: this thread lives as long as the object.
        self._nursery = ThreadPoolExecutor(max_workers=1, thread_name_prefix="triton")

    @property
    def address(self) -> str:
        """The gRPC address for clients of this user."""
        if self._network:
            return f"{self._network.near}:{self._network.grpc}"
        path = self._socket()
        if len(os.fsencode(path)) <= _LONGEST_SOCKET:
            return f"unix:{path}"
        if self._folder is None:
            self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"unix:/proc/{os.getpid()}/fd/{self._folder}/{path.name}"

    def _socket(self) -> Path:
        """Returns the socket's path. Its folder is closed to other users, whatever the umask and the home's mode are."""
        path = self.home / f"{_SOCKET}:1"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        return path

    @property
    def gpu(self) -> bool:
        return serves_on_gpus()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and waits until it answers; does nothing if it runs. Raises Unavailable with the reason."""
        with self._lock:
            if self.alive:
                return
            installed = find_server()
            sweep()
            self._clear()
            self.repository.mkdir(parents=True, exist_ok=True)
            self._socket().unlink(missing_ok=True)  # left by a killed server
            backends = installed.lay_out(self.home / "backends")
            written = self.log.stat().st_size if self.log.exists() else 0
            self._process = self._nursery.submit(self._spawn, installed.server, backends, installed.environment()).result()
            if self._answers():
                self.generation += 1
                return
            output = self._output_since(written)
            self._clear()
            raise Unavailable(f"the embedded Triton does not start: {_reason(output)}; read {self.log}")

    def ensure_running(self) -> bool:
        """Restarts a dead server. Returns True if it did: then nothing is loaded."""
        with self._lock:
            if self._process is None or self.alive:
                self._tidy()
                return False
            self.start()
            return True

    def kill(self) -> bool:
        """Kills the server and its stubs, except during a start or stop. Returns whether it did."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self.alive or self._process is None:
                return False
            os.killpg(self._process.pid, signal.SIGKILL)
            return True
        finally:
            self._lock.release()

    def vouch(self) -> None:
        """Does nothing: no other process waits for this server's versions."""

    def end(self, grace: float = 10.0) -> None:
        """Sends TERM, then KILL to the group after `grace` seconds; leaves no process and no shared memory."""
        with self._lock:
            if self.alive and self._process is not None and grace > 0:
                self._process.terminate()  # the server ends its stubs itself
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(grace)
            self._clear()

    def stop(self, grace: float = 10.0) -> None:
        """Ends the server for good; after `end`, `ensure_running` starts it again."""
        with self._lock:
            self.end(grace)
            self._process = None
            if self._folder is not None:
                os.close(self._folder)
                self._folder = None
            self._nursery.shutdown(wait=True)

    def memory(self) -> int:
        """Returns the resident bytes of the server and its stubs."""
        total = 0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def mapped(self, name: str) -> int | None:
        """Returns the resident bytes of memory-mapped files of that name; None if no process maps one."""
        sizes: list[int] = []
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                sizes += [part.rss for part in process.memory_maps() if Path(part.path).name == name]
        return sum(sizes) if sizes else None

    def _processes(self) -> list[psutil.Process]:
        try:
            server = psutil.Process(self.pid)
            return [server, *server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _spawn(self, server: Path, backends: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as stream:
            return subprocess.Popen(  # noqa: S603  the wheel's server, or the image's
                [
                    *(sys.executable, "-I", str(SHIM), "--private", str(os.getpid()), str(server)),
                    f"--model-repository={self.repository}",
                    f"--backend-directory={backends}",
                    f"--backend-config=python,shm-region-prefix-name={self._mark}",
                    "--model-control-mode=explicit",
                    "--disable-auto-complete-config",  # configurations are complete; a load takes 0.35 s, not 1.4 s
                    "--strict-readiness=false",
                    "--exit-timeout-secs=5",
                    "--allow-http=false",
                    f"--allow-gpu-metrics={str(self.gpu).lower()}",
                    *(
                        self._network.options()
                        if self._network
                        else ("--allow-metrics=false", f"--grpc-address=unix:{_SOCKET}", "--grpc-port=1")
                    ),
                ],
                cwd=self.home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        """Waits until the server is ready; returns False if it ended or took too long."""
        deadline = time.monotonic() + self._timeout
        while self.alive and time.monotonic() < deadline:
            if self._listens():
                client = Client(self.address, certificates=self.certificates)
                try:
                    if client.ready():
                        return self.alive
                finally:
                    client.close()
            time.sleep(_POLL)
        return False

    def _listens(self) -> bool:
        if self._network is None:
            return self._socket().is_socket()
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self._network.near, self._network.grpc)) == 0

    def _tidy(self) -> None:
        if time.monotonic() - self._tidied > _TIDY:
            self._tidied = time.monotonic()
            sweep_deserted(self._mark)

    def _clear(self) -> None:
        """Kills the process group, stubs included, and removes everything with this server's mark."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        sweep(self._mark)

    def _output_since(self, offset: int) -> str:
        if self.alive:
            return f"no answer within {self._timeout:g} s"
        with self.log.open("rb") as stream:
            stream.seek(offset)
            return stream.read(1 << 16).decode(errors="replace")


def disposable(home: Path) -> EmbeddedTriton:
    """Returns a server with an empty folder, for one verification."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    return EmbeddedTriton(home)


def _reason(output: str) -> str:
    """Returns the last line that reports an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [
        line for line in lines if any(word in line.lower() for word in ("error", "shim:", "failed", "cannot open")) and "NVML" not in line
    ]
    return (telling or lines or ["the process ended without output"])[-1][:400]
