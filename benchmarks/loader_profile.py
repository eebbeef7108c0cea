"""Where our loader's time goes, a row: `python -m benchmarks.loader --profile`.

The core's functions are wrapped by a clock that every thread has of its own: a function's time is without that of the wrapped ones that it
calls. CPU is the thread's own, so it means something on a busy machine; elapsed time holds what the thread waited, too. The clock
itself takes about a microsecond a call, of which a batch has some dozens.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from benchmarks.loader_contenders import POOL
from benchmarks.loader_processes import BATCH, prepare, watched
from benchmarks.peers.loader_run import VALUES, Asked, cpu_seconds
from pipelines.loaders import cache, chunks, columns, decoding, epochs, loader, orders, reading
from pipelines.loaders.plan import Plan


@dataclass
class Clock:
    """By name: elapsed seconds, CPU seconds, calls."""

    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    inner: threading.local = field(default_factory=threading.local)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        outer = self.inner.__dict__.get("now")
        mine = self.inner.now = [0.0, 0.0]
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            elapsed, used = time.perf_counter() - began, time.thread_time() - cpu
            self.inner.now = outer
            if outer is not None:
                outer[0] += elapsed
                outer[1] += used
            with self.lock:
                for n, value in enumerate((elapsed - mine[0], used - mine[1], 1.0)):
                    self.taken[name][n] += value

    def wrap(self, owner: Any, method: str, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, method)

        @wraps(inner)
        def timed(*args: Any, **more: Any) -> Any:
            with self.of(name):
                return inner(*args, **more)

        setattr(owner, method, timed)

    def wrap_cached(self, owner: Any, names: tuple[str, ...], name: str) -> None:
        for one in names:
            made = cached_property(self._property(owner.__dict__[one].func, name))
            made.__set_name__(owner, one)
            setattr(owner, one, made)

    def _property(self, inner: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        def timed(of: Any) -> Any:
            with self.of(name):
                return inner(of)

        return timed


def watch(clock: Clock) -> None:
    for owner, method, name in (
        (pq.ParquetFile, "__init__", "decode: opening"),
        (pq.ParquetFile, "read_row_group", "decode: pyarrow"),
        (chunks, "pack_column", "decode: into arrays"),
        (decoding, "pack_lists", "decode: lists into rows"),
        (cache.CachedColumn, "read", "cache: reading"),
        (cache, "_read_layout", "cache: checking"),
        (cache.SelectionCache, "put", "cache: writing"),
        (orders.ChunkOrders, "of", "order of a chunk"),
        (columns.FlatColumn, "take", "take: single values"),
        (columns.ShortListBatch, "take", "take: short lists"),
        (columns.LongListBatch, "take", "take: long lists"),
        (reading.ChunkReads, "part", "read: the rest"),
        (reading, "joined", "batch: put together"),
        (epochs.BatchAssembly, "batch", "batch: the rest"),
    ):
        clock.wrap(owner, method, name)
    clock.wrap_cached(columns.ShortLists, ("values", "offsets"), "batch: short lists' values and offsets")
    inner = Plan.pools

    def planned(self: Plan, epoch: int) -> Iterator[Any]:
        pools = inner(self, epoch)
        while True:
            with clock.of("plan"):
                pool = next(pools, None)
            if pool is None:
                return
            yield pool

    Plan.pools = planned  # type: ignore[method-assign]


def profiled(said: Asked, opened: Callable[[Asked], loader.Loader], *, lists: bool = True) -> dict[str, Any]:
    clock = Clock()
    watch(clock)
    made = opened(said)
    rows, waited, began, cpu = 0, 0.0, time.perf_counter(), cpu_seconds()
    batches = made.epoch(0)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        rows += len(batch["user"])
        if lists:
            assert len(batch[VALUES]) == len(batch["user"])
    seconds, used = time.perf_counter() - began, cpu_seconds() - cpu
    parts = {name: {"elapsed": one[0], "cpu": one[1], "calls": one[2]} for name, one in clock.taken.items()}
    return {"rows": rows, "seconds": seconds, "cpu": used, "waited": waited, "threads": made.threads, "parts": parts}


def told(found: Mapping[str, Any]) -> str:
    rows, seconds = found["rows"], found["seconds"]
    waited, threads = 100 * found["waited"] / seconds, found["threads"]
    lines = [f"{rows:,} rows in {seconds:.3f} s: {rows / seconds:,.0f} rows/s; the caller waited {waited:.0f} % of it; {threads} threads"]
    parts = sorted(found["parts"].items(), key=lambda pair: -float(pair[1]["cpu"]))
    rest = found["cpu"] - sum(one["cpu"] for _, one in parts)
    for name, one in [("all threads", found), *parts, ("everything else, the clock too", {"cpu": rest})]:
        more = f"{1e9 * one['elapsed'] / rows:7.1f} ns elapsed {one['calls']:7.0f} calls" if "elapsed" in one else ""
        lines.append(f"  {name:42} {1e9 * one['cpu'] / rows:7.1f} ns CPU a row {more}".rstrip())
    return "\n".join(lines)


def measure(folder: Path, count: int, pool: int = POOL) -> dict[str, Any]:
    """From Parquet and from the cache, each in a process of its own."""
    place = prepare(folder / str(count), count, {"cache"})
    found = {}
    for source in ("parquet", "cache"):
        found[source] = in_a_process(Asked(f"numpy-{source}", place, BATCH, pool, 0.0, 0, check=False, held={}))
        Console(soft_wrap=True).print(f"from {source}: {told(found[source])}")
    Path("var/bench/loader-profile.json").write_text(json.dumps(found, indent=1))
    return found


def in_a_process(said: Asked) -> dict[str, Any]:
    asked = [said.what, str(said.folder), str(said.batch), str(said.pool), "0", "0", "0"]
    found, _, _ = watched([sys.executable, "-m", "benchmarks.loader_profile", *asked])
    return found


def main() -> None:
    """`WHAT FOLDER BATCH POOL SECONDS ROWS CHECK`, as a contender."""
    from benchmarks.loader_eyas import opened
    from benchmarks.peers.loader_run import asked

    sys.stdout.write(json.dumps(profiled(asked(), opened)) + "\n")


if __name__ == "__main__":
    main()
