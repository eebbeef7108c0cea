"""The part that all contenders of the loader benchmark share: batches are read, touched, counted and timed.

    python loader_X.py CONTENDER FOLDER BATCH POOL SECONDS ROWS CHECK

It ends with the epoch, after SECONDS, or after ROWS, if these are not 0. A batch is touched by the sum of its users. With CHECK 1 all
columns are added up, to compare the contenders: then times mean nothing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

USER, ITEM, RATING, AGE, LABEL, VALUES, LENGTHS = "user", "item", "rating", "age", "label", "genres", "lengths"
Batch = Mapping[str, NDArray[Any]]
"""Arrays by those names; lists as values and lengths, where there are lists."""
Epoch = tuple[Callable[[], Iterator[Any]], Callable[[Any], Batch]]
"""Begins to read, and returns the arrays of a batch."""


@dataclass(frozen=True)
class Request:
    contender: str
    folder: Path
    batch: int
    pool: int
    seconds: float = 0.0
    rows: int = 0
    check: bool = False

    def files(self, pattern: str = "*.parquet") -> list[str]:
        return sorted(map(str, self.folder.glob(pattern)))

    @property
    def arguments(self) -> list[str]:
        numbers = (self.batch, self.pool, self.seconds, self.rows, int(self.check))
        return [self.contender, str(self.folder), *map(str, numbers)]


def read_request() -> Request:
    contender, folder, batch, pool, seconds, rows, check = sys.argv[1:]
    return Request(contender, Path(folder), int(batch), int(pool), float(seconds), int(rows), check == "1")


def run(request: Request, open_epoch: Callable[[Request], Epoch]) -> None:
    """To be called right after the imports: memory that is resident now counts as theirs."""
    imports = {"imports": status("VmRSS"), "imports_anon": status("RssAnon")}
    epoch, arrays = open_epoch(request)
    cpu, began = cpu_seconds(), time.perf_counter()
    first, first_rows, first_cpu, rows, touched = 0.0, 0, 0.0, 0, 0
    sums: dict[str, float] = {}
    batches = epoch()
    whole = True
    for batch in batches:
        columns = arrays(batch)
        rows += len(columns[USER])
        touched += int(columns[USER].sum(dtype=np.int64))
        if request.check:
            add(sums, columns)
        if not first:
            first, first_rows, first_cpu = time.perf_counter() - began, rows, cpu_seconds() - cpu
        if (request.seconds and time.perf_counter() - began > request.seconds) or (request.rows and rows >= request.rows):
            whole = False
            break
    seconds = time.perf_counter() - began
    if hasattr(batches, "close"):
        batches.close()  # ends its processes, so that their CPU counts
    del batches
    epoch_of = {"seconds": seconds, "cpu": cpu_seconds() - cpu, "rows": rows, "whole": whole}
    start = {"first": first, "first_rows": first_rows, "first_cpu": first_cpu}
    sys.stdout.write(json.dumps({**epoch_of, **start, **imports, "peak": status("VmHWM"), "sums": {USER: touched} | sums}) + "\n")


def add(sums: dict[str, float], batch: Batch) -> None:
    """The products show whether each list is still with its row."""
    columns = {name: batch[name].sum(dtype=np.int64 if batch[name].dtype.kind in "iu" else np.float64) for name in batch}
    if LENGTHS in batch:
        columns["user x lengths"] = batch[USER].astype(np.int64) @ batch[LENGTHS].astype(np.int64)
        rows = np.repeat(np.arange(len(batch[USER])), batch[LENGTHS])
        columns["item x genres"] = batch[ITEM].astype(np.int64)[rows] @ batch[VALUES].astype(np.int64)
    for name, value in columns.items():
        sums[name] = sums.get(name, 0) + value.item()


def cpu_seconds() -> float:
    """Of this process and of its ended children."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def status(name: str) -> float:
    """Returns MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))
