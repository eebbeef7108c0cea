"""Launcher of the ranks of a stage on one machine; reports which rank failed and why.

Each rank has a folder below the attempt's. Rank 0 prints the stage's log. Other ranks log to files; the end of a failed rank's log is
printed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.training.ranks import processes_of
from shared.contracts.ranks import LEFT, MEET, RANK, RANKS
from shared.contracts.stage import StageSpec

GRACE = "EYAS_RANK_GRACE"
"""Seconds that the other ranks have to end after the first rank has ended; default 15."""
LAUNCHER = "EYAS_LAUNCHER"
_LOG, _TAIL = "log.txt", 20
_POLL = 0.05
_PR_SET_PDEATHSIG = 1
REFUSED = 2


@dataclass
class RankProcess:
    number: int
    process: subprocess.Popen[bytes]
    folder: Path
    ended_by_us: bool = False

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def last_words(self) -> list[str]:
        with (self.folder / _LOG).open(errors="replace") as stream:
            return [line.rstrip() for line in deque((line for line in stream if line.strip()), _TAIL)]


def launch(spec: StageSpec, path: Path, log: logging.Logger) -> int:
    """Returns the stage's exit code. Only rank 0 publishes; on code 1 nothing is published."""
    count = processes_of(spec)
    log.info("ranks: starting processes=%d", count)
    ranks = _started(spec, path, count)
    try:
        _wait(ranks, float(os.environ.get(GRACE, "15")))
    finally:
        for rank in ranks:
            if rank.code is None:
                rank.process.kill()
            rank.process.wait()
    first = ranks[0].code
    if first in (0, REFUSED):
        for rank in ranks:
            shutil.rmtree(rank.folder, ignore_errors=True)
        return first
    failed = _culprit(ranks)
    if failed.number:
        for line in failed.last_words():
            log.error("rank: last lines rank=%d line=%s", failed.number, line)
    log.error("%s: failed error=%s", spec.stage, f"{_why(failed, count)}; the other ranks were stopped")
    return 1


def _started(spec: StageSpec, path: Path, count: int) -> list[RankProcess]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    threads = str(max(1, len(os.sched_getaffinity(0)) // count))
    shared = {RANKS: str(count), MEET: f"127.0.0.1:{port}", LAUNCHER: str(os.getpid()), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = []
    for number in range(count):
        folder = path.parent / f"rank-{number}"
        folder.mkdir(exist_ok=True)
        own = folder / path.name
        shutil.copy(path, own)
        environment = {"OMP_NUM_THREADS": threads, **os.environ, **shared, RANK: str(number)}
        ranks.append(RankProcess(number, _spawned(spec.stage, own, environment, None if number == 0 else folder / _LOG), folder))
    return ranks


def _spawned(stage: str, spec: Path, environment: Mapping[str, str], log: Path | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", f"pipelines.stages.{stage}", "--spec", str(spec)]
    if log is None:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)  # noqa: S603  the command is ours
    with log.open("wb") as stream:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)  # noqa: S603  as well


def _wait(ranks: Sequence[RankProcess], grace: float) -> None:
    """Waits for all ranks. After the first failure, or the end of rank 0, kills those that are still running after `grace` seconds."""
    until: float | None = None
    while any(rank.code is None for rank in ranks):
        time.sleep(_POLL)
        ended = any(rank.code for rank in ranks) or ranks[0].code is not None
        if ended and until is None:
            until = time.monotonic() + grace
        if until is not None and time.monotonic() > until:
            for rank in ranks:
                if rank.code is None:
                    rank.ended_by_us = True
                    rank.process.kill()
                    rank.process.wait()


def _culprit(ranks: Sequence[RankProcess]) -> RankProcess:
    """Returns a rank that died by itself; else a rank that had to be killed; else a rank that left."""
    died = [rank for rank in ranks if not rank.ended_by_us and rank.code not in (0, LEFT)]
    silent = [rank for rank in ranks if rank.ended_by_us]
    return next(iter([*died, *silent, *(rank for rank in ranks if rank.code)]))


def _why(failed: RankProcess, count: int) -> str:
    who, code = f"rank {failed.number} of {count}", failed.code or 0
    if failed.ended_by_us:
        return f"{who} stopped responding to the other ranks"
    if code < 0:
        return f"{who} was killed by signal {-code} ({signal.Signals(-code).name})"
    if code == LEFT:
        return f"{who} lost the other ranks"
    words = failed.last_words() if failed.number else []
    return f"{who} ended with exit code {code}" + (f": {words[-1]}" if words else "")


def end_with_launcher() -> None:
    """Makes this rank die with its launcher, however the launcher ends."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):
        sys.exit(LEFT)
