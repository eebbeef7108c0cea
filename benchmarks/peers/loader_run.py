"""What every contender of the loader benchmark does alike: batches are taken, touched, counted and timed.

    python loader_X.py WHAT FOLDER BATCH POOL SECONDS ROWS CHECK

It ends with the epoch, after SECONDS, or as soon as it has had ROWS, if these are not 0. A batch is touched by the sum of its users. With
CHECK 1 all of it is added up, for comparing with the others: then times mean nothing.
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


@dataclass(frozen=True)
class Asked:
    what: str
    folder: Path
    batch: int
    pool: int
    seconds: float
    rows: int
    check: bool
    held: Mapping[str, float]
    """MiB that imports alone take: resident, and the part of it that no file backs."""

    def files(self, pattern: str) -> list[str]:
        return sorted(map(str, self.folder.glob(pattern)))


def asked() -> Asked:
    """To be called right after the imports."""
    what, folder, batch, pool, seconds, rows, check = sys.argv[1:]
    held = {"imports": status("VmRSS"), "imports_anon": status("RssAnon")}
    return Asked(what, Path(folder), int(batch), int(pool), float(seconds), int(rows), check == "1", held)


def run(said: Asked, epoch: Callable[[], Iterator[Any]], arrays: Callable[[Any], Batch]) -> None:
    """`epoch` begins to read when it is called; `arrays` gives what is in a batch, as numpy sees it."""
    cpu, began = cpu_seconds(), time.perf_counter()
    first, first_rows, first_cpu, rows, touched = 0.0, 0, 0.0, 0, 0
    sums: dict[str, float] = {}
    batches = epoch()
    whole = True
    for batch in batches:
        there = arrays(batch)
        rows += len(there[USER])
        touched += int(there[USER].sum(dtype=np.int64))
        if said.check:
            add(sums, there)
        if not first:
            first, first_rows, first_cpu = time.perf_counter() - began, rows, cpu_seconds() - cpu
        if (said.seconds and time.perf_counter() - began > said.seconds) or (said.rows and rows >= said.rows):
            whole = False
            break
    seconds = time.perf_counter() - began
    if hasattr(batches, "close"):
        batches.close()  # ends processes of its own, so that their time is known
    del batches
    took = {"seconds": seconds, "cpu": cpu_seconds() - cpu, "rows": rows, "whole": whole}
    begin = {"first": first, "first_rows": first_rows, "first_cpu": first_cpu}
    sys.stdout.write(json.dumps({**took, **begin, **said.held, "peak": status("VmHWM"), "sums": {USER: touched} | sums}) + "\n")


def add(sums: dict[str, float], batch: Batch) -> None:
    """The last one says whether each list is still with its row."""
    found = {name: batch[name].sum(dtype=np.int64 if batch[name].dtype.kind in "iu" else np.float64) for name in batch}
    if LENGTHS in batch:
        found["user x lengths"] = batch[USER].astype(np.int64) @ batch[LENGTHS].astype(np.int64)
        rows = np.repeat(np.arange(len(batch[USER])), batch[LENGTHS])
        found["item x genres"] = batch[ITEM].astype(np.int64)[rows] @ batch[VALUES].astype(np.int64)
    for name, value in found.items():
        sums[name] = sums.get(name, 0) + value.item()


def cpu_seconds() -> float:
    """Of this process and of those that it has ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def status(name: str) -> float:
    """MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))
