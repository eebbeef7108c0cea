"""What an embedded platform costs while nobody uses it: CPU time by process and thread, and statements to the database.

    python -m benchmarks.idle [--seconds 60] [--runs 3] [--root CHECKOUT ...]

Two small recommenders are trained and promoted. With `--root`, the code of another checkout runs as well, on a copy of the same home and
in turns with this one's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil

from benchmarks.report import Row, publish
from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import quick_spec, write_world

_PROGRAM = Path(__file__).with_name("named_threads.py")
_SETTLE = 45.0
"""Seconds until nothing is left of the start: gRPC's first connections, versions that left a route."""
_AGE = 330.0
"""Seconds after the training until nobody was used or routed lately: gauges cover five minutes."""
_LEAST = 0.01
"""Of the CPU time of all: a thread below it is not listed by itself."""
_STATEMENTS = re.compile(r"^eyas_database_seconds_count\{.*\} ([0-9.e+]+)$", re.MULTILINE)
_NUMBERED = re.compile(r"[-_]?\d+$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of one measurement")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--root", type=Path, action="append", default=[], help="another checkout to measure beside this one")
    parser.add_argument("--settle", type=float, default=_SETTLE, help="seconds between the start and the measurement")
    options = parser.parse_args()
    figures: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        trained = _train(Path(folder) / "trained")
        time.sleep(_AGE)
        for _ in range(options.runs):
            for root in (Path.cwd(), *options.root):
                shares = _measure(trained, Path(folder) / "copy", root.absolute(), options.settle, options.seconds)
                for (name, unit), value in shares.items():
                    figures[root.absolute().name, name, unit].append(value)
    publish("idle", [Row("two recommenders", root, name, unit, values) for (root, name, unit), values in sorted(figures.items())])
    return 0


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
    program, settings = (sys.executable, "-P", str(_PROGRAM)), {"PYTHONPATH": str(root)}
    with PlatformProcess(folder / "home", trained / "data", settings=settings, program=program) as platform:
        time.sleep(settle)
        before, began = _look(platform), time.monotonic()
        time.sleep(seconds)
        after, took = _look(platform), time.monotonic() - began
    spent = {name: (after[name] - before.get(name, 0.0)) / took for name in after}
    return _rows(spent)


def _look(platform: PlatformProcess) -> dict[str, float]:
    """Seconds of CPU by process, and of the platform's own by thread; statements."""
    assert platform.process is not None
    seconds: dict[str, float] = defaultdict(float)
    control = psutil.Process(platform.process.pid)
    seconds["statements"] = sum(float(count) for count in _STATEMENTS.findall(httpx.get(platform.metrics_url).text))
    for thread in control.threads():
        name = Path(f"/proc/{control.pid}/task/{thread.id}/comm").read_text().strip()
        seconds[f"thread {_NUMBERED.sub('', name)}"] += thread.user_time + thread.system_time
    for process in (control, *platform.children()):
        name = "control" if process is control else process.name()
        times = process.cpu_times()
        seconds[f"process {name}"] += times.user + times.system
    return dict(seconds)


def _rows(spent: Mapping[str, float]) -> dict[tuple[str, str], float]:
    everything = sum(value for name, value in spent.items() if name.startswith("process "))
    shares = {("all processes", "% of a core"): 100 * everything}
    for name, value in spent.items():
        if name == "statements":
            shares["statements", "1/s"] = value
        elif name.startswith("process ") or value >= _LEAST * everything:
            shares[name, "% of a core"] = 100 * value
    return shares


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    sys.exit(main())
