"""The faults, one at a time, and how each is repaired."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.faults_world import VECTORS, put_spec, register, slow
from benchmarks.harness import until
from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from shared.serving.signature import INDEX
from tests.servers.platform_process import PlatformProcess
from tests.servers.postgres_server import Server
from tests.support.broken_models import not_a_number_of_real_items

LASTS = 10.0
_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


@dataclass
class Moments:
    """On the monotonic clock; and the version whose answers are wanted meanwhile."""

    version: int
    broke: float = 0.0
    repaired: float = 0.0

    def breaks(self) -> None:
        self.broke = time.monotonic()

    def is_repaired(self) -> None:
        self.repaired = time.monotonic()


Case = Callable[[Moments], None]


class Cases:
    """Each leaves everything whole, or on its way there. `good` is the version that answers before and after."""

    def __init__(self, world: World, platform: PlatformProcess, good: int, server: Server | None) -> None:
        self._world, self._platform, self._good, self._server = world, platform, good, server

    def all(self) -> Mapping[str, Case]:
        if self._server:
            return {"PostgreSQL stopped for 10 s": self._stop_postgres}
        hung, slow_version = partial(self._stop_triton, seconds=LASTS), partial(self._switch, model=slow(15_000))
        return {
            "Triton killed (SIGKILL)": self._kill_triton,
            "Triton stands still for 2 s (SIGSTOP)": partial(self._stop_triton, seconds=2),
            "Triton stands still for 10 s (SIGSTOP)": hung,
            "a version that takes 3 s, for 10 s": slow_version,
            "Triton stands still for 10 s, and the spec waits 100 ms": partial(self._hurry, act=hung),
            "a version that takes 3 s, for 10 s, and the spec waits 100 ms": partial(self._hurry, act=slow_version),
            "a version that answers NaN, for 10 s": partial(self._switch, model=not_a_number_of_real_items()),
            "SQLite locked by another writer for 15 s": self._lock_file,
            "a version without vectors, for 10 s": partial(self._switch, without=VECTORS),
            "a version whose index is damaged, for 10 s": partial(self._damage, file=INDEX),
            "a version whose vectors are damaged, for 10 s": partial(self._damage, file=VECTORS[0]),
        }

    def _hurry(self, moments: Moments, act: Case) -> None:
        put_spec(self._world, deadlines={"score": "100ms"})
        time.sleep(2)  # gateways read specs twice a second
        act(moments)

    def _kill_triton(self, moments: Moments) -> None:
        moments.breaks()
        os.kill(self._triton(), signal.SIGKILL)
        moments.is_repaired()

    def _stop_triton(self, moments: Moments, seconds: float) -> None:
        pid = self._triton()
        moments.breaks()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        moments.is_repaired()

    def _switch(self, moments: Moments, model: bytes | None = None, without: tuple[str, ...] = ()) -> None:
        self._route(moments, register(self._world, model, without))

    def _damage(self, moments: Moments, file: str) -> None:
        """A bit of the stored file flips."""
        number = register(self._world, index=f"EYASNEAR1 {time.time()}".encode() if file == INDEX else None)
        digest = self._world.registry.get(NAME, number).files[file].sha256
        stored = (self._platform.home / "artifacts").rglob("*")
        (path,) = [path for path in stored if path.is_file() and digest in str(path).replace("/", "")]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)
        self._route(moments, number)

    def _route(self, moments: Moments, number: int) -> None:
        """Loaded first, as a rollout would; then it serves all users for a while."""
        self._world.serve(Route(self._good, candidate=number))
        until(f"version {number} is on Triton", lambda: number in self._placed())
        time.sleep(1)  # the gateway reads its routes ten times a second
        moments.version = number
        moments.breaks()
        self._world.serve(Route(number, candidate=self._good))
        time.sleep(LASTS)
        self._world.serve(Route(self._good))
        moments.is_repaired()

    def _lock_file(self, moments: Moments) -> None:
        command = [sys.executable, "-c", _LOCK, str(self._platform.home / "eyas.db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:  # noqa: S603
            assert holder.stdout
            assert holder.stdin
            holder.stdout.readline()
            moments.breaks()
            time.sleep(1.5 * LASTS)  # longer than a writer waits for another one
            holder.stdin.close()
        moments.is_repaired()

    def _stop_postgres(self, moments: Moments) -> None:
        assert self._server
        moments.breaks()
        self._server.stop()
        time.sleep(LASTS)
        self._server.start()
        moments.is_repaired()

    def _triton(self) -> int:
        (process,) = [child for child in self._platform.children() if child.name() == "tritonserver"]
        return process.pid

    def _placed(self) -> set[int]:
        (replica,) = self._platform.get("/v1/serving")["server"]["replicas"]
        return set(replica["versions"].get(NAME, []))
