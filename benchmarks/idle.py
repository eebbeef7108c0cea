"""What an embedded platform costs while it has no users: CPU time by process and thread, and statements to the database.

    python -m benchmarks.idle [--seconds 60] [--runs 3] [--root CHECKOUT ...]

Two small recommenders are trained and promoted. With `--root`, the code of another checkout runs as well, on a copy of the same home and
in turns with this one's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import httpx
import psutil

from benchmarks.harness import Figures, Row, benchmark, cpu_seconds, scratch
from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import quick_spec, write_world

_SETTLE = 45.0
"""Seconds until the effects of the start are over: gRPC's first connections, versions that left a route."""
_AGE = 330.0
"""Seconds after the training until no user or route is recent: gauges cover five minutes."""
_LEAST = 0.01
"""Of the CPU time of all: a thread below it is not listed by itself."""
_STATEMENTS = re.compile(r"^eyas_database_seconds_count\{.*\} ([0-9.e+]+)$", re.MULTILINE)
_NUMBERED = re.compile(r"[-_]?\d+$")
_NAMED_THREADS = """
import ctypes, threading
prctl, run = ctypes.CDLL(None).prctl, threading.Thread.run
def named(thread):
    prctl(15, thread.name.encode()[:15], 0, 0, 0)
    run(thread)
threading.Thread.run = named
from services.cli.main import main
main()
"""
"""`eyas` with the names of its threads shown by the operating system: PR_SET_NAME."""


@benchmark("idle")
def idle(
    seconds: Annotated[float, "of one measurement"] = 60,
    runs: int = 3,
    root: Annotated[Sequence[Path], "other checkouts to measure beside this one"] = (),
    settle: Annotated[float, "seconds between the start and the measurement"] = _SETTLE,
) -> Iterator[Row]:
    figures = Figures("two recommenders")
    with scratch() as folder:
        trained = _train(folder / "trained")
        time.sleep(_AGE)
        for _ in range(runs):
            for checkout in (Path.cwd(), *(other.absolute() for other in root)):
                for (name, unit), value in _measure(trained, folder / "copy", checkout, settle, seconds).items():
                    figures.add(checkout.name, name, unit, value)
    yield from sorted(figures.rows(), key=lambda row: (row.contender, row.metric, row.unit))


def _train(folder: Path) -> Path:
    write_world(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as platform:
        runs = [platform.post("/v1/recommenders", quick_spec(folder / "data", name=name))["run"] for name in ("movies", "films")]
        for run in runs:
            platform.wait_for_rollout(platform.wait_for_run(run, "registered")["rollout"], "promoted")
    return folder


def _measure(trained: Path, folder: Path, root: Path, settle: float, seconds: float) -> Mapping[tuple[str, str], float]:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(trained / "home", folder / "home")
    program, settings = (sys.executable, "-P", "-c", _NAMED_THREADS), {"PYTHONPATH": str(root)}
    with PlatformProcess(folder / "home", trained / "data", settings=settings, program=program) as platform:
        time.sleep(settle)
        before, began = _read(platform), time.monotonic()
        time.sleep(seconds)
        after, took = _read(platform), time.monotonic() - began
    spent = {name: (value - before.get(name, 0.0)) / took for name, value in after.items()}
    everything = sum(value for name, value in spent.items() if name.startswith("process "))
    shares = {("statements", "1/s"): spent.pop("statements"), ("all processes", "% of a core"): 100 * everything}
    for name, value in spent.items():
        if name.startswith("process ") or value >= _LEAST * everything:
            shares[name, "% of a core"] = 100 * value
    return shares


def _read(platform: PlatformProcess) -> dict[str, float]:
    """Seconds of CPU by process, and of the platform's own by thread; statements."""
    assert platform.process is not None
    values: dict[str, float] = defaultdict(float)
    control = psutil.Process(platform.process.pid)
    values["statements"] = sum(float(count) for count in _STATEMENTS.findall(httpx.get(platform.metrics_url).text))
    for thread in control.threads():
        name = Path(f"/proc/{control.pid}/task/{thread.id}/comm").read_text().strip()
        values[f"thread {_NUMBERED.sub('', name)}"] += thread.user_time + thread.system_time
    for process in (control, *platform.children()):
        values[f"process {'control' if process is control else process.name()}"] += cpu_seconds([process])
    return values


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    idle()
