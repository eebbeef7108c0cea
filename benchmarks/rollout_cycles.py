"""Versions loaded and unloaded, a thousand times, beside one that 32 threads ask; then tritonserver killed under the same load.

    python -m benchmarks.rollout_cycles [--cycles 1000] [--kills 5]

Measured: failures, seconds of a change, memory of the server and of its Python processes over the cycles, and how long a killed
server is away. The control plane's loop looks every 0.2 s in production; here the benchmark starts a killed server again at once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from benchmarks.harness import Missed, Outcome, Row, benchmark, latencies, say, scratch, until
from shared.testing.askers import Askers
from tests.servers.triton_fixture import Stand
from tests.support.version_cycles import cycle

_THREADS = 32
_PATIENCE = 30.0


@benchmark("rollout_cycles")
def rollout_cycles(cycles: int = 1000, kills: int = 5) -> Iterator[Outcome]:
    with scratch() as folder:
        stand = Stand(folder, timeout=_PATIENCE)
        try:
            changes = cycle(stand, cycles, 10, 0.05, lambda point: say(f"{point.cycles} cycles: server {point.server:.0f} MiB"))
            case = f"{cycles} cycles, {_THREADS} threads"
            yield Row(case, "eyas", "requests", "", [changes.asked])
            yield Row(case, "eyas", "failed requests", "", [len(changes.failures)])
            yield from latencies(case, "eyas", changes.latencies, 50, 99)
            yield Row(case, "eyas", "latency, longest", "ms", [1000 * changes.latencies[-1]])
            yield Row(case, "eyas", "a change", "s", changes.places)
            yield Row(case, "eyas", "broken versions, all reported", "", [changes.reported])
            for point in changes.curve:
                at = f"after {point.cycles} cycles"
                yield Row(at, "eyas", "tritonserver", "MiB", [point.server])
                yield Row(at, "eyas", "its Python processes", "MiB", [point.stubs])
                yield Row(at, "eyas", "Python processes", "", [point.processes])
                yield Row(at, "eyas", "files in shared memory", "", [point.regions])
                yield Row(at, "eyas", "the process that places and asks", "MiB", [point.asker])
            if changes.failures:
                yield Missed(f"{len(changes.failures)} requests failed, such as: {changes.failures[0]}")
            rounds = [_kill(stand) for _ in range(kills)]
        finally:
            stand.close()
    if rounds:
        case, wrong = f"killed under {_THREADS} threads", sum(faults for _, faults in rounds)
        yield Row(case, "eyas", "without an answer", "s", [seconds for seconds, _ in rounds])
        yield Row(case, "eyas", "wrong versions or failures afterwards", "", [wrong])
        if wrong:
            yield Missed("after a kill the right versions are back, and no request fails")


def _kill(stand: Stand) -> tuple[float, int]:
    """Seconds without an answer; and whether the wrong versions were back, or a request failed after that."""
    right = stand.server.answering("movies")
    with Askers(stand.server, "movies", 1, _THREADS, pause=0.05) as askers:
        until("a first answer", lambda: askers.calls)
        began = time.monotonic()
        os.kill(stand.triton.pid or 0, signal.SIGKILL)
        until("the server is dead", lambda: not stand.triton.alive, pause=0.005)
        stand.server.ensure_running()
        back = time.monotonic()
        wrong = int(stand.server.answering("movies") != right)
        until("an answer", lambda: any(call.at > back for call in askers.calls))
    wrong += any(call.failure for call in askers.calls if call.at > back)
    answered = min(call.at + call.seconds for call in askers.calls if not call.failure and call.at > began)
    return answered - began, wrong


if __name__ == "__main__":
    rollout_cycles()
