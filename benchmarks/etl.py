"""Features of MovieLens-shaped rows, written to Parquet: both engines, and NVTabular, DuckDB and polars as people write them by hand.

    python -m benchmarks.etl [--rows 4000000] [--grown 16000000] [--runs 3] [--only NAME ...]

The work: user, film and genres to codes; what a film's rows were liked on average, out of fold (5 folds, smoothing 20); how many rows a
user has; seconds since the user's last row; genres x hour in 10,000 buckets; sine and cosine of day and week. The rows come in the order
of time. Each contender is a process of its own and times the work alone, without its imports; memory is the peak of it and its children.
Outputs are compared with those of polars by hand. DuckDB is installed on first use (var/bench/duckdb), NVTabular by `make setup-nvtabular`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.etl_check import differences
from benchmarks.etl_rows import write_rows
from benchmarks.report import Row, peak, publish

PEERS = Path(__file__).parent / "peers"
NVTABULAR = Path(".venv-nvtabular/bin/python").absolute()
DUCKDB = ("duckdb==1.4.5",)
_DUCKDB_HOME = Path("var/bench/duckdb").absolute()
WORKERS = "2"
"""Of Dask: it is faster so than in one process."""


@dataclass(frozen=True)
class Contender:
    name: str
    command: Callable[[], list[str]]
    more: tuple[str, ...] = ()
    """Arguments after the rows and the folder."""
    slow: bool = False
    """Then the grown number of rows is tried once."""


@dataclass(frozen=True)
class Run:
    seconds: float
    mebibytes: float


CONTENDERS = (
    Contender("eyas: polars", lambda: [sys.executable, "-m", "benchmarks.etl_eyas", "polars"]),
    Contender("polars by hand", lambda: [sys.executable, str(PEERS / "etl_polars.py")]),
    Contender("duckdb", lambda: [_duckdb(), str(PEERS / "etl_duckdb.py")]),
    Contender("eyas: nvtabular", lambda: [_nvtabular(), "-m", "benchmarks.etl_eyas", "nvtabular"], slow=True),
    Contender("nvtabular by hand", lambda: [_nvtabular(), str(PEERS / "etl_nvtabular.py")], (WORKERS,), slow=True),
)
REFERENCE = "polars by hand"


Found = dict[tuple[str, int], list[Run]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--grown", type=int, default=16_000_000, help="0: not at all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=[one.name for one in CONTENDERS], help="all, if not given")
    said = parser.parse_args()
    chosen = [one for one in CONTENDERS if not said.only or one.name in said.only]
    Path("var/bench").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="etl-", dir="var/bench") as scratch:
        folder = Path(scratch).absolute()
        found = measured(chosen, folder, said.rows, said.runs)
        unlike = compared(folder, [one.name for one in chosen])
        if said.grown:
            found |= measured(chosen, folder, said.grown, said.runs, grown=True)
    for name, lines in unlike.items():
        Console().print(f"{name}: {'; '.join(lines) or f'as {REFERENCE}'}")
    publish("etl", table(found, said.rows, said.grown), differences=unlike)
    return 0


def measured(chosen: Sequence[Contender], folder: Path, count: int, runs: int, *, grown: bool = False) -> Found:
    """Their turns alternate. What each wrote last stays."""
    rows = write_rows(folder / f"{count}.parquet", count)
    found: Found = {}
    for turn in range(runs):
        for one in chosen:
            if grown and one.slow and turn:
                continue
            out = place(folder, one.name)
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            run = watched([*one.command(), str(rows), str(out), *one.more])
            Console().print(f"{count:,} rows, {one.name}: {run.seconds:.2f} s, {run.mebibytes:,.0f} MiB")
            found.setdefault((one.name, count), []).append(run)
    rows.unlink()
    return found


def place(folder: Path, name: str) -> Path:
    return folder / name.replace(": ", "-").replace(" ", "-")


def compared(folder: Path, names: Sequence[str]) -> dict[str, list[str]]:
    if REFERENCE not in names:
        return {}
    return {name: differences(place(folder, REFERENCE), place(folder, name)) for name in names if name != REFERENCE}


def watched(command: list[str]) -> Run:
    """The work's seconds as the process says them, and the sum of the highest that it and each of its children held."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(Path.cwd()), "EYAS_DASK": WORKERS}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:  # noqa: S603
        highest: dict[int, float] = {}
        while process.poll() is None:
            for pid in _family(process.pid):
                highest[pid] = max(peak(pid), highest.get(pid, 0.0))
            time.sleep(0.02)
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Run(json.loads(said.splitlines()[-1])["seconds"], sum(highest.values()))


def _family(pid: int) -> list[int]:
    try:
        return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def table(found: Found, count: int, grown: int) -> list[Row]:
    speeds = {key: [key[1] / run.seconds for run in runs] for key, runs in found.items()}
    rows = []
    for (name, size), runs in found.items():
        ours = statistics.median(speeds[name, size])
        ratios = {other: ours / statistics.median(values) for (other, at), values in speeds.items() if at == size and other != name}
        rows.append(Row(f"{size:,} rows", name, "throughput", "rows/s", speeds[name, size], ratios))
        rows.append(Row(f"{size:,} rows", name, "peak memory", "MiB", [run.mebibytes for run in runs]))
    for (name, size), runs in found.items():
        if size == grown:
            less = found[name, count]
            times = statistics.median(run.seconds for run in runs) / statistics.median(run.seconds for run in less)
            held = statistics.median(run.mebibytes for run in runs) / statistics.median(run.mebibytes for run in less)
            rows.append(Row(f"{count:,} to {grown:,} rows", name, "time grows", "times", [times]))
            rows.append(Row(f"{count:,} to {grown:,} rows", name, "memory grows", "times", [held]))
    return rows


def _nvtabular() -> str:
    if not NVTABULAR.exists():
        raise SystemExit("NVTabular's environment is missing: make setup-nvtabular")
    return str(NVTABULAR)


def _duckdb() -> str:
    python = _DUCKDB_HOME / "bin" / "python"
    if not python.exists():
        sys.stderr.write(f"installing {DUCKDB[0]} into {_DUCKDB_HOME}\n")
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(_DUCKDB_HOME)], check=True)  # noqa: S603
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *DUCKDB], check=True)  # noqa: S603
    return str(python)


if __name__ == "__main__":
    raise SystemExit(main())
