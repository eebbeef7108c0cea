"""Versions loaded and unloaded, a thousand times, beside one that 32 threads ask; then tritonserver killed under the same load.

    python -m benchmarks.rollout_cycles [--cycles 1000] [--kills 5]

What failed, how long a change takes, what the server and its Python processes hold in memory over the cycles, and how long a killed
server is away. The control plane's loop looks every 0.2 s in production; here whoever killed it starts it again at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.report import Row, publish
from shared.testing.askers import Askers
from tests.servers.triton_fixture import Stand
from tests.support.version_cycles import Cycles, Point, cycle

_THREADS = 32
_PATIENCE = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    say = Console(highlight=False).print

    def said(point: Point) -> None:
        say(
            f"  {point.cycles:5} cycles: server {point.server:.0f} MiB, {point.processes} stubs {point.stubs:.0f} MiB, "
            f"{point.regions} regions, asker {point.asker:.0f} MiB"
        )

    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        stand = Stand(Path(folder), timeout=_PATIENCE)
        try:
            say(f"{given.cycles} cycles under {_THREADS} threads")
            found = cycle(stand, given.cycles, points=10, pause=0.05, said=said)
            say(f"{given.kills} kills under {_THREADS} threads")
            away, wrong = kills(stand, given.kills)
        finally:
            stand.close()
    case = f"{given.cycles} cycles, {_THREADS} threads"
    publish("rollout_cycles", [*_rows(case, found), *_away(f"killed under {_THREADS} threads", away, wrong)])
    for failure in found.failures[:5]:
        say(f"failed: {failure}")
    return 1 if found.failures or wrong else 0


def kills(stand: Stand, times: int) -> tuple[list[float], int]:
    """Seconds without an answer, of each kill; and how often the wrong versions were back, or a request failed after that."""
    away: list[float] = []
    wrong = 0
    right = stand.server.answering("movies")
    for _ in range(times):
        with Askers(stand.server, "movies", 1, _THREADS, pause=0.05) as askers:
            _until(lambda askers=askers: askers.calls)
            began = time.monotonic()
            os.kill(stand.triton.pid or 0, signal.SIGKILL)
            _until(lambda: not stand.triton.alive)
            stand.server.ensure_running()
            back = time.monotonic()
            wrong += stand.server.answering("movies") != right
            _until(lambda askers=askers, back=back: any(call.at > back for call in askers.calls))
        wrong += any(call.failure for call in askers.calls if call.at > back)
        answered = min(call.at + call.seconds for call in askers.calls if not call.failure and call.at > began)
        away.append(answered - began)
    return away, wrong


def _until(condition: object) -> None:
    assert callable(condition)
    while not condition():
        time.sleep(0.005)


def _rows(case: str, found: Cycles) -> list[Row]:
    p50, p99 = 1000 * np.percentile(found.latencies, [50, 99])
    curve = found.curve
    rows = [
        Row(case, "eyas", "requests", "", [found.asked]),
        Row(case, "eyas", "failed requests", "", [len(found.failures)]),
        Row(case, "eyas", "latency, p50", "ms", [p50]),
        Row(case, "eyas", "latency, p99", "ms", [p99]),
        Row(case, "eyas", "latency, longest", "ms", [1000 * found.latencies[-1]]),
        Row(case, "eyas", "a change", "s", found.places),
        Row(case, "eyas", "broken versions, all reported", "", [found.reported]),
    ]
    for point in curve:
        at = f"after {point.cycles} cycles"
        rows += [
            Row(at, "eyas", "tritonserver", "MiB", [point.server]),
            Row(at, "eyas", "its Python processes", "MiB", [point.stubs]),
            Row(at, "eyas", "Python processes", "", [point.processes]),
            Row(at, "eyas", "files in shared memory", "", [point.regions]),
            Row(at, "eyas", "the process that places and asks", "MiB", [point.asker]),
        ]
    return rows


def _away(case: str, away: list[float], wrong: int) -> list[Row]:
    if not away:
        return []
    return [Row(case, "eyas", "without an answer", "s", away), Row(case, "eyas", "wrong versions or failures afterwards", "", [wrong])]


if __name__ == "__main__":
    raise SystemExit(main())
