"""A thousand trivial runs of two steps on Prefect: run by benchmarks/control.py with the Python of Prefect's own environment.

    python prefect_runs.py COUNT THREADS      (PREFECT_API_URL names the server, whose state is in SQLite)

Flows run in this process, as many at a time as there are threads: no worker, no process a run, so what is timed is the
orchestration alone. Prints one JSON line: {"seconds": ..., "completed": ...}.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from prefect import flow, task


@task
def one(number: int) -> int:
    return number + 1


@task
def two(number: int) -> int:
    return number * 2


@flow
def trivial(number: int) -> int:
    return two(one(number))


def main() -> None:
    count, threads = int(sys.argv[1]), int(sys.argv[2])
    trivial(0)
    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        ended = list(pool.map(trivial, range(count)))
    seconds = time.monotonic() - began
    sys.stdout.write(json.dumps({"seconds": seconds, "completed": sum(n == 2 * (i + 1) for i, n in enumerate(ended))}) + "\n")


if __name__ == "__main__":
    main()
