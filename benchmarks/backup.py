"""Backup and restore of a database with many answers, and the time of writes beside a backup.

python -m benchmarks.backup [--answers 1000000]
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, benchmark, databases
from benchmarks.kpis import fill
from services.eventlog.sql import SqlEventLog
from services.store.dumps import dump, load
from services.store.engine import open_engine
from services.wiring.backup import TABLES
from shared.contracts.events import Interaction
from tests.servers.postgres_server import programs

_EVERY = 0.02
_QUIET = 10.0
"""Seconds of writes without a backup."""


@benchmark("backup")
def backup(answers: int = 1_000_000) -> Iterator[Row]:
    os.environ["PATH"] = f"{programs() / 'bin'}:{os.environ['PATH']}"
    with databases() as new_database, tempfile.TemporaryDirectory() as folder:
        for kind in ("SQLite", "PostgreSQL"):
            url, path = new_database(kind, migrated=True), Path(folder) / kind
            engine = open_engine(url)
            fill(engine, answers)
            log = SqlEventLog(engine)
            quiet, _ = _writes(log, partial(time.sleep, _QUIET))
            beside, seconds = _writes(log, partial(dump, url, None, TABLES, path))
            yield Row(f"{answers:,} answers", f"eyas on {kind}", "backup", "s", [seconds])
            yield Row(f"{answers:,} answers", f"eyas on {kind}", "size of the dump", "MB", [path.stat().st_size / 1e6])
            for name, durations in (("quiet", quiet), ("beside a backup", beside)):
                yield Row(f"50 events/s, {name}", f"eyas on {kind}", "p99 of a write", "ms", [1e3 * float(np.quantile(durations, 0.99))])
                yield Row(f"50 events/s, {name}", f"eyas on {kind}", "longest write", "ms", [1e3 * max(durations)])
            engine.dispose()
            target, began = new_database(kind), time.monotonic()
            load(target, None, TABLES, path)
            yield Row(f"{answers:,} answers", f"eyas on {kind}", "restore", "s", [time.monotonic() - began])


def _writes(log: SqlEventLog, work: Callable[[], object]) -> tuple[list[float], float]:
    """Writes 50 events a second during the work; returns the seconds of each write, and of the work."""
    durations: list[float] = []
    ends = threading.Event()

    def write() -> None:
        while not ends.wait(_EVERY):
            began = time.monotonic()
            event = Interaction(recommender="films", user=len(durations), item=1, at=datetime.now(UTC))
            log.interactions([event], [True], timedelta(minutes=30))
            durations.append(time.monotonic() - began)

    writer = threading.Thread(target=write)
    writer.start()
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    ends.set()
    writer.join()
    return durations, seconds


if __name__ == "__main__":
    backup()
