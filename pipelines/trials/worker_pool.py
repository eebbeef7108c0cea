"""The search's side of its worker: one process that trains and judges, started anew when it dies."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from shared.domain.errors import BadData, EyasError, Invalid

COMMAND = (sys.executable, "-P", "-m", "pipelines.trials.worker")
Message = dict[str, Any]


class Died(Exception):
    """Its reason is the message."""


class Worker:
    """`first` is what a new process is told before any trial, and where its scratch is, which goes with it however it ends."""

    def __init__(self, first: Message, command: Sequence[str] = COMMAND) -> None:
        self._first, self._command = first, command
        self._process: subprocess.Popen[str] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.about: Message = {}
        """What it says of the data."""

    def tried(self, request: Message) -> Message:
        """A worker that dies has failed in this trial."""
        try:
            if self._process is None:
                self.start()
            return self._ask(request)
        except Died as error:
            return {"failed": str(error), "seconds": 0.0}

    def start(self) -> None:
        """Reads the data. Its faults are the search's."""
        self._scratch = tempfile.TemporaryDirectory(prefix="eyas-tune-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(  # noqa: S603  the command is ours
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", process_group=0
        )  # of a group of its own: an interrupt of the terminal is the search's, which then ends it
        try:
            self.about = self._ask({**self._first, "scratch": self._scratch.name})
        except Died as error:
            raise BadData(f"the data can't be read: {error}") from None
        if "fault" in self.about:
            kind: type[EyasError] = Invalid if self.about.get("mendable") else BadData
            raise kind(self.about["fault"])

    def close(self) -> None:
        """It has nothing to keep."""
        if self._process is None:
            return
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()
        self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _ask(self, request: Message) -> Message:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # it is dead, and the empty answer says so
        line = process.stdout.readline()
        if not line.endswith("\n"):
            code = process.wait()
            self.close()
            raise Died(_reason(code))
        answer: Message = json.loads(line)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _reason(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed, most likely for want of memory"
    return f"its process died of {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"
