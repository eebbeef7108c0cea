"""What breaks, one thing at a time, and how it is repaired."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults_world import VECTORS, put_spec, register, slow
from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from shared.serving.signature import INDEX
from tests.servers.platform_process import PlatformProcess, until
from tests.servers.postgres_server import Server
from tests.support.broken_models import not_a_number_of_real_items

LASTS = 10.0
_LOCK = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
held.execute("ROLLBACK")
"""


@dataclass
class Moments:
    """On the monotonic clock; and which version's answers are wanted meanwhile."""

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
            return {"PostgreSQL stopped for 10 s": self._postgres_stops}
        return {
            "Triton killed (SIGKILL)": self._triton_dies,
            "Triton stands still for 2 s (SIGSTOP)": lambda moments: self._triton_stands(moments, 2),
            "Triton stands still for 10 s (SIGSTOP)": lambda moments: self._triton_stands(moments, LASTS),
            "a version that takes 3 s, for 10 s": lambda moments: self._switched(moments, slow(15_000)),
            "Triton stands still for 10 s, and the spec waits 100 ms": lambda moments: self._hurried(
                moments, lambda moments: self._triton_stands(moments, LASTS)
            ),
            "a version that takes 3 s, for 10 s, and the spec waits 100 ms": lambda moments: self._hurried(
                moments, lambda moments: self._switched(moments, slow(15_000))
            ),
            "a version that answers NaN, for 10 s": lambda moments: self._switched(moments, not_a_number_of_real_items()),
            "SQLite locked by another writer for 15 s": self._file_locked,
            "a version without vectors, for 10 s": lambda moments: self._switched(moments, without=VECTORS),
            "a version whose index is damaged, for 10 s": self._index_damaged,
            "a version whose vectors are damaged, for 10 s": self._vectors_damaged,
        }

    def _hurried(self, moments: Moments, act: Case) -> None:
        put_spec(self._world, deadlines={"score": "100ms"})
        time.sleep(2)  # gateways read specs twice a second
        act(moments)

    def _triton_dies(self, moments: Moments) -> None:
        moments.breaks()
        os.kill(self._triton(), signal.SIGKILL)
        moments.is_repaired()

    def _triton_stands(self, moments: Moments, seconds: float) -> None:
        pid = self._triton()
        moments.breaks()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        moments.is_repaired()

    def _switched(self, moments: Moments, model: bytes | None = None, without: tuple[str, ...] = ()) -> None:
        self._routed(moments, register(self._world, model, without))

    def _index_damaged(self, moments: Moments) -> None:
        number = register(self._world, index=f"EYASNEAR1 {time.time()}".encode())
        self._damage(number, INDEX)
        self._routed(moments, number)

    def _vectors_damaged(self, moments: Moments) -> None:
        number = register(self._world)
        self._damage(number, VECTORS[0])
        self._routed(moments, number)

    def _damage(self, number: int, name: str) -> None:
        """A bit of the file flips where it lies."""
        digest = self._world.registry.get(NAME, number).files[name].sha256
        (path,) = [one for one in _files(self._platform.home / "artifacts") if digest in str(one).replace("/", "")]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)

    def _routed(self, moments: Moments, number: int) -> None:
        """Loaded first, as a rollout would; then it is everybody's for a while."""
        self._world.serve(Route(self._good, candidate=number))
        until(f"version {number} is on Triton", lambda: number in self._placed())
        time.sleep(1)  # the gateway looks at its routes ten times a second
        moments.version = number
        moments.breaks()
        self._world.serve(Route(number, candidate=self._good))
        time.sleep(LASTS)
        self._world.serve(Route(self._good))
        moments.is_repaired()

    def _file_locked(self, moments: Moments) -> None:
        command = [sys.executable, "-c", _LOCK, str(self._platform.home / "eyas.db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:  # noqa: S603
            assert holder.stdout
            assert holder.stdin
            holder.stdout.readline()
            moments.breaks()
            time.sleep(1.5 * LASTS)  # longer than a writer waits for another one
            holder.stdin.close()
        moments.is_repaired()

    def _postgres_stops(self, moments: Moments) -> None:
        assert self._server
        moments.breaks()
        self._server.stop()
        time.sleep(LASTS)
        self._server.start()
        moments.is_repaired()

    def _triton(self) -> int:
        found = [one.pid for one in self._platform.children() if one.name() == "tritonserver"]
        assert len(found) == 1, found
        return found[0]

    def _placed(self) -> set[int]:
        (replica,) = self._platform.get("/v1/serving")["server"]["replicas"]
        return set(replica["versions"].get(NAME, []))


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file()]
