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
    asked = parser.parse_args()
    figures: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        trained = _train(Path(folder) / "trained")
        time.sleep(_AGE)
        for _ in range(asked.runs):
            for root in (Path.cwd(), *asked.root):
                for (what, unit), value in _measure(trained, Path(folder) / "copy", root.absolute(), asked.settle, asked.seconds).items():
                    figures[root.absolute().name, what, unit].append(value)
    publish("idle", [Row("two recommenders", root, what, unit, values) for (root, what, unit), values in sorted(figures.items())])
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
    spent = {what: (after[what] - before.get(what, 0.0)) / took for what in after}
    return _rows(spent)


def _look(platform: PlatformProcess) -> dict[str, float]:
    """Seconds of CPU by process, and of the platform's own by thread; statements."""
    assert platform.process is not None
    found: dict[str, float] = defaultdict(float)
    control = psutil.Process(platform.process.pid)
    found["statements"] = sum(float(count) for count in _STATEMENTS.findall(httpx.get(platform.metrics_url).text))
    for one in control.threads():
        name = Path(f"/proc/{control.pid}/task/{one.id}/comm").read_text().strip()
        found[f"thread {_NUMBERED.sub('', name)}"] += one.user_time + one.system_time
    for process in (control, *platform.children()):
        name = "control" if process is control else process.name()
        times = process.cpu_times()
        found[f"process {name}"] += times.user + times.system
    return dict(found)


def _rows(spent: Mapping[str, float]) -> dict[tuple[str, str], float]:
    everything = sum(value for what, value in spent.items() if what.startswith("process "))
    found = {("all processes", "% of a core"): 100 * everything}
    for what, value in spent.items():
        if what == "statements":
            found["statements", "1/s"] = value
        elif what.startswith("process ") or value >= _LEAST * everything:
            found[what, "% of a core"] = 100 * value
    return found


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    sys.exit(main())
