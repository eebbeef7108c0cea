"""Child processes of the local executor: each has its own process group, and ends when its parent ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SHIM = Path(__file__).parents[1] / "shim.py"


class ProcessSpawner:
    """Starts children from one thread that lives as long as the spawner.

    The kernel kills a child of the shim when the thread that forked it ends: a child of a request's thread would die with the request.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nursery")

    def spawn(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> Child:
        return self._thread.submit(self._spawn, command, cwd, env, log).result()

    def close(self) -> None:
        """Ends the thread; the kernel then kills the remaining children."""
        self._thread.shutdown(wait=True)

    @staticmethod
    def _spawn(command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> Child:
        with log.open("ab") as stream:
            process = subprocess.Popen(  # noqa: S603  the command is an interpreter and an allow-listed module
                [sys.executable, "-I", str(SHIM), str(os.getpid()), *command],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Child(process)


class Child:
    """A process and its group; when the process has ended, the rest of the group is killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._reaping = threading.Lock()
        self.ended = threading.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    def reap(self, report: Callable[[int], None]) -> None:
        """Waits for the end on a separate thread, and reports the exit code."""
        threading.Thread(target=self._reap, args=(report,), name=f"reap-{self.pid}", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Sends SIGTERM to the group, and SIGKILL after `grace` seconds; returns when the end has been reported."""
        self._signal(signal.SIGTERM)
        if not self.ended.wait(grace):
            self._signal(signal.SIGKILL)
            self.ended.wait()

    def _reap(self, report: Callable[[int], None]) -> None:
        # Kill the group before its leader is reaped: until then no other process can get its number.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._signal(signal.SIGKILL)
        with self._reaping:
            code = self._process.wait()
        try:
            report(code)
        finally:
            self.ended.set()

    def _signal(self, number: signal.Signals) -> None:
        with self._reaping:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, number)
