"""Child processes of the local executor: each in a group of its own, each dead when its parent is."""

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
    """Starts children from one thread that lives as long as it does.

    The kernel ends a child of the shim when the thread that forked it ends: a child that was forked from a request's
    thread would die with the request.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nursery")

    def spawn(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> Child:
        return self._thread.submit(self._spawn, command, cwd, env, log).result()

    def close(self) -> None:
        """Ends the thread, and so, by the kernel's hand, whatever child is left."""
        self._thread.shutdown(wait=True)

    @staticmethod
    def _spawn(command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> Child:
        with log.open("ab") as stream:
            process = subprocess.Popen(  # noqa: S603  the command is ours: an interpreter and an allow-listed module
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
    """A process and its group; whoever is left of the group when the process has ended is ended too."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._reaping = threading.Lock()
        self.ended = threading.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    def reap(self, report: Callable[[int], None]) -> None:
        """Waits for the end and reports its code, on a thread of its own."""
        threading.Thread(target=self._reap, args=(report,), name=f"reap-{self.pid}", daemon=True).start()

    def stop(self, grace: float) -> None:
        """TERM to the group, then KILL to what is left after `grace` seconds; returns when its end has been reported."""
        self._signal(signal.SIGTERM)
        if not self.ended.wait(grace):
            self._signal(signal.SIGKILL)
            self.ended.wait()

    def _reap(self, report: Callable[[int], None]) -> None:
        # The group goes before its leader is reaped: until then nobody else can get the number.
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
