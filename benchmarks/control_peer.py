"""The same trivial runs of two steps: on our loop and store, and on Prefect with a server of its own. Both keep every state in SQLite.

Prefect is installed on first use into an environment of its own (var/bench/prefect); it isn't a dependency of the project.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
from rich.console import Console

from benchmarks.report import Row
from benchmarks.trivial import Status, Trivial
from services.control.reconcile import Reconciler
from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.resources import SqlResources
from shared.contracts.records import RetrainerSpec
from shared.ports import Record

_PREFECT = ("prefect==3.8.8", "fastapi==0.148.*")  # with a newer FastAPI that release's server doesn't start
_HOME = Path("var/bench/prefect").absolute()
_THREADS = 2
"""Of Prefect's client: with more of them its server on SQLite answers 503 where cores are few."""
_MIB = 2**20


class _Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def trivial_runs(fresh: Callable[[str], str], databases: list[str], count: int, rounds: int, peer: bool) -> list[Row]:
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for database in databases:
            found.setdefault(f"eyas on {database}", []).append(_ours(fresh(database), count))
        if peer:
            Console().print(f"Prefect: {count} runs, which take some minutes")
            found.setdefault("prefect on sqlite", []).append(_prefects(count))
    case = f"{count} runs of two steps"
    medians = {name: sorted(speed for speed, _ in figures)[len(figures) // 2] for name, figures in found.items()}
    rows = []
    for name, figures in found.items():
        ratios = {other: medians[name] / speed for other, speed in medians.items() if other != name}
        rows.append(Row(case, name, "throughput", "runs/s", [speed for speed, _ in figures], ratios))
        rows.append(Row(case, name, "resident memory", "MiB", [held for _, held in figures]))
    return rows


def _ours(url: str, count: int) -> tuple[float, float]:
    """Runs a second (made, run and read back), and MiB of a process that does nothing else."""
    said = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.control_peer", url, str(count)], check=True, capture_output=True, text=True
    ).stdout
    speed, held = json.loads(said)
    return speed, held


def _one_round(url: str, count: int) -> tuple[float, float]:
    engine = open_engine(url)
    upgrade(engine)
    store = SqlResources(engine, "trivial", Status, RetrainerSpec)
    clock = _Clock()
    kind = Trivial(store, len)
    reconciler = Reconciler(kind, clock)
    began = time.monotonic()
    for number in range(count):
        store.create(Record(f"t{number:06}", "trivial", RetrainerSpec(), Status(), clock.now(), clock.now()), "bench")
    while reconciler.tick():
        pass
    ended = sum(one.status.state == "done" for one in store.list(active=False, limit=count))
    seconds = time.monotonic() - began
    engine.dispose()
    if ended != count or len(kind.results) != 2 * count:
        raise SystemExit(f"{ended} of {count} runs ended, after {len(kind.results)} steps")
    return count / seconds, psutil.Process().memory_info().rss / _MIB


def _prefects(count: int) -> tuple[float, float]:
    """Runs a second, and MiB of Prefect's server with the process that runs the flows."""
    python = _environment()
    with tempfile.TemporaryDirectory(prefix="eyas-bench-prefect-") as home, _server(python, Path(home)) as (server, env):
        script = Path(__file__).parent / "peers" / "prefect_runs.py"
        with (Path(home) / "said").open("w+") as said, (Path(home) / "flows.log").open("w+") as faults:
            command = [str(python), str(script), str(count), str(_THREADS)]
            flows = subprocess.Popen(command, env=env, stdout=said, stderr=faults)  # noqa: S603
            held = 0.0
            while flows.poll() is None:
                with_children = [psutil.Process(pid) for pid in (server, flows.pid)]
                held = max(held, sum(_resident(process) for process in with_children))
                time.sleep(1)
            said.seek(0)
            faults.seek(0)
            lines, why = said.read().strip().splitlines(), faults.read().strip().splitlines()[-1:]
    found = json.loads(lines[-1]) if lines else {"completed": 0}
    if found["completed"] != count:
        raise SystemExit(f"Prefect completed {found['completed']} of {count} runs: {' '.join(why) or 'it said nothing'}")
    return count / found["seconds"], held


def _resident(process: psutil.Process) -> float:
    try:
        return sum(float(one.memory_info().rss) for one in (process, *process.children(recursive=True))) / _MIB
    except psutil.NoSuchProcess:
        return 0.0


def _environment() -> Path:
    python = _HOME / "bin" / "python"
    if not python.exists():
        Console().print(f"installing {_PREFECT[0]} into {_HOME}")
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(_HOME)], check=True)  # noqa: S603
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *_PREFECT], check=True)  # noqa: S603
    return python


@contextmanager
def _server(python: Path, home: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    quiet = {"PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    env = {**os.environ, **quiet, "PREFECT_HOME": str(home), "PREFECT_API_URL": api}
    command = [str(python.parent / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)  # noqa: S603
    try:
        _await(f"{api}/health", server, home / "server.log")
        yield server.pid, env
    finally:
        server.terminate()
        server.wait(30)


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"Prefect's server ended: {log.read_text()[-500:]}")
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("Prefect's server didn't answer within a minute")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_one_round(sys.argv[1], int(sys.argv[2]))))
