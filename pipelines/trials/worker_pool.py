"""Controls the worker process of a search and restarts it after a crash."""

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


class WorkerDied(Exception):
    """The worker died; the message is the reason."""


class Worker:
    """A worker process. `first` is sent to each new process before any trial, with a scratch folder that is removed at the end."""

    def __init__(self, first: Message, command: Sequence[str] = COMMAND) -> None:
        self._first, self._command = first, command
        self._process: subprocess.Popen[str] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.about: Message = {}
        """The worker's description of the data."""

    def tried(self, request: Message) -> Message:
        """Runs a trial; a crash of the worker fails the trial."""
        try:
            if self._process is None:
                self.start()
            return self._ask(request)
        except WorkerDied as error:
            return {"failed": str(error), "seconds": 0.0}

    def start(self) -> None:
        """Starts a process and sends the data; raises errors of the data."""
        self._scratch = tempfile.TemporaryDirectory(prefix="eyas-tune-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(  # noqa: S603  the command is ours
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", process_group=0
        )  # a separate process group: Ctrl-C reaches only the search, which then kills the process
        try:
            self.about = self._ask({**self._first, "scratch": self._scratch.name})
        except WorkerDied as error:
            raise BadData(f"the data cannot be read: {error}") from None
        if "fault" in self.about:
            kind: type[EyasError] = Invalid if self.about.get("mendable") else BadData
            raise kind(self.about["fault"])

    def close(self) -> None:
        """Kills the process, which has no state to save."""
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
            pass  # the process is dead: the empty answer below reports it
        line = process.stdout.readline()
        if not line.endswith("\n"):
            code = process.wait()
            self.close()
            raise WorkerDied(_reason(code))
        answer: Message = json.loads(line)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _reason(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the process was killed, probably because memory ran out"
    return f"the process was ended by {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"
