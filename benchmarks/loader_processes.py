"""A contender of the loader benchmark in a process of its own, and what is made ready for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.loader_rows import write_rows

BATCH = 32_768


@dataclass(frozen=True)
class Run:
    rows: int
    seconds: float
    cpu: float
    first: float
    """Seconds to the first batch, which had `first_rows`; CPU until then."""
    first_rows: int
    first_cpu: float
    whole: bool
    imports: float
    """MiB that were resident after them."""
    peak: float
    anonymous: float
    """MiB that no file backed, at most, of those looked at, without what imports took."""
    sums: Mapping[str, float]

    def counted(self, *, steady: bool) -> tuple[int, float, float]:
        """Rows, seconds and CPU: of an epoch from opening the files on, of a part of one as the contender has it."""
        if self.whole or not steady or self.rows == self.first_rows:
            return self.rows, self.seconds, self.cpu
        return self.rows - self.first_rows, self.seconds - self.first, self.cpu - self.first_cpu

    def rate(self, *, steady: bool) -> float:
        """Rows a second."""
        rows, seconds, _ = self.counted(steady=steady)
        return rows / seconds

    def cost(self, *, steady: bool) -> float:
        """Seconds of CPU a million rows."""
        rows, _, cpu = self.counted(steady=steady)
        return 1e6 * cpu / rows


def run(command: Sequence[str], folder: Path, *, pool: int, seconds: float = 0.0, rows: int = 0, check: bool = False) -> Run:
    said, anonymous, shared = watched([*command, str(folder), str(BATCH), str(pool), str(seconds), str(rows), str(int(check))])
    taken = {name: said[name] for name in ("rows", "seconds", "cpu", "first", "first_rows", "first_cpu", "whole", "imports", "sums")}
    return Run(**taken, peak=max(said["peak"], shared), anonymous=anonymous - said["imports_anon"])


def watched(command: Sequence[str]) -> tuple[dict[str, Any], float, float]:
    """What it says at its end; the most of anonymous memory; and, where it has children, the most of them all, what they share once."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(Path.cwd()), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env, text=True) as process,  # noqa: S603
    ):
        anonymous = shared = 0.0
        while process.poll() is None:
            anonymous = max(anonymous, _mebibytes(process.pid, "status", "RssAnon") + _mebibytes(process.pid, "status", "RssShmem"))
            if children := _children(process.pid):
                shared = max(shared, sum(_mebibytes(pid, "smaps_rollup", "Pss") for pid in (process.pid, *children)))
            time.sleep(0.02)
        assert process.stdout is not None
        said = process.stdout.read()
        errors.seek(0)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{errors.read()[-2000:]}")
    if not said.strip():
        return {}, anonymous, shared
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found, anonymous, shared


def prepare(folder: Path, count: int, needs: set[str]) -> Path:
    """The rows as Parquet, and as TFRecord where somebody needs them."""
    write_rows(folder, count)
    for what in sorted(needs & {"rows", "batches"}):
        watched([sys.executable, "-m", "benchmarks.loader_records", what, str(folder), str(count), str(BATCH)])
    if "cache" in needs:
        run([sys.executable, "-m", "benchmarks.loader_eyas", "numpy-fill"], folder, pool=0)
    return folder


def _mebibytes(pid: int, file: str, name: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":")), 0.0)


def _children(pid: int) -> list[int]:
    try:
        return [one.pid for one in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
