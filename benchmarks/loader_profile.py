"""Profile of our loader, CPU by function: `python -m benchmarks.loader --profile`.

Each thread has its own profiler, whose clock is the thread's CPU: it means something on a busy machine. A function's time is without that
of the functions that it calls. Profiling itself takes about a microsecond a call, of which a batch has some hundreds.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Outcome, Row, watched
from benchmarks.loader_eyas import loader_of
from benchmarks.peers.loader_run import VALUES, Request, cpu_seconds, read_request
from benchmarks.tables import answer

LEAST = 0.02
"""Functions with a smaller share of the CPU are summed."""


def profile(request: Request) -> dict[str, Any]:
    """Reads an epoch in this process."""
    profilers: list[cProfile.Profile] = []

    def start(*_: Any) -> None:
        profilers.append(cProfile.Profile(time.thread_time))
        profilers[-1].enable()

    loader = loader_of(request)
    threading.setprofile(start)
    rows, waited, began, cpu = 0, 0.0, time.perf_counter(), cpu_seconds()
    start()
    batches, ended = loader.epoch(0), object()
    while True:
        waits = time.perf_counter()
        batch: Any = next(batches, ended)
        waited += time.perf_counter() - waits
        if batch is ended:
            break
        rows += len(batch["user"])
        assert len(batch[VALUES]) == len(batch["user"])
    profilers[0].disable()
    seconds, used = time.perf_counter() - began, cpu_seconds() - cpu
    functions: dict[str, float] = {}
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(*profilers).stats.items():  # type: ignore[attr-defined]
        label = name if file == "~" else f"{Path(file).stem}.{name}"
        functions[label] = functions.get(label, 0.0) + own
    return {"rows": rows, "seconds": seconds, "cpu": used, "waited": waited, "threads": loader.threads, "functions": functions}


def measure(folder: Path, batch: int, pool: int, sources: Sequence[str] = ("parquet", "cache")) -> Iterator[Outcome]:
    """Each source in a process of its own."""
    for source in sources:
        request = Request(f"numpy-{source}", folder, batch, pool)
        document = watched([sys.executable, "-m", "benchmarks.loader_profile", *request.arguments]).document
        rows, seconds, cpu = document["rows"], document["seconds"], document["cpu"]
        case, share = f"{rows:,} rows, from {source}", document["waited"] / seconds
        note = f"the caller waited {share:.0%} of the time; {document['threads']} threads"
        yield Row(case, "eyas: numpy", "throughput", "rows/s", [rows / seconds], note=note)
        functions = {name: own for name, own in document["functions"].items() if own > LEAST * cpu}
        functions = {"all threads": cpu} | dict(sorted(functions.items(), key=lambda pair: -pair[1]))
        functions["everything else"] = 2 * cpu - sum(functions.values())
        for name, own in functions.items():
            yield Row(case, "eyas: numpy", f"CPU, {name}", "ns a row", [1e9 * own / rows])


if __name__ == "__main__":
    answer(profile(read_request()))
