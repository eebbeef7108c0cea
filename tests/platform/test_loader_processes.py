"""Loaders and processes: a loader sent to another process, an interrupt, a full disk, and two processes that build one cache."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.cache import Cache
from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.plan import Shard

ROWS = 3_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ids = np.arange(ROWS)
    some = pa.array([[one % 7] * (one % 4) for one in ids.tolist()], pa.list_(pa.int32()))
    pq.write_table(pa.table({"id": ids, "some": some}), tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path / "rows.parquet"


def ids(loader: Loader, number: int = 0) -> list[int]:
    return [one for batch in loader.epoch(number) for one in batch["id"].tolist()]  # type: ignore[union-attr]


def _of_a_shard(loader: Loader, queue: Any) -> None:
    queue.put(ids(loader))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_goes_on_in_another_process(method: str, path: Path, tmp_path: Path) -> None:
    """Before and after it was used in this one."""
    loader = open_loader(path, batch_size=64, pool=500, shard=Shard(1, 2), cache=Cache(tmp_path / "cache"), corrupt="skip")
    for _ in range(2):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=_of_a_shard, args=(loader, queue))  # type: ignore[attr-defined]
        process.start()
        found = queue.get(timeout=60)
        process.join()
        assert found == ids(loader) and loader.skipped.rows == 0


INTERRUPTED = """
import os, signal, sys, threading, time
from pipelines.loaders.loader import open_loader
entered, go = threading.Event(), threading.Event()
def slow(batch, random):
    entered.set()
    go.wait(20)
    return batch
loader = open_loader(sys.argv[1], batch_size=64, pool=500, stages=(slow,))
def interrupt():
    entered.wait(20)
    os.kill(os.getpid(), signal.SIGINT)
    go.set()
threading.Thread(target=interrupt).start()
try:
    for batch in loader.epoch(0):
        pass
except KeyboardInterrupt:
    def left():
        return [one.name for one in threading.enumerate() if one.name.startswith(("decoding", "assembling"))]
    until = time.monotonic() + 20
    while left() and time.monotonic() < until:  # one that was just being started is told to end, and not waited for
        time.sleep(0.01)
    print("interrupted", left())
"""


def test_an_interrupt_while_it_waits_ends_it(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted []\n", "", 0)


FULL = """
import resource, signal, sys
from pathlib import Path
from pipelines.loaders.cache import Cache
from pipelines.loaders.loader import open_loader
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
loader = open_loader(sys.argv[1], batch_size=64, pool=500, cache=Cache(Path(sys.argv[2])))
for epoch in range(2):
    found = sorted(one for batch in loader.epoch(epoch) for one in batch["id"].tolist())
    assert found == list(range(len(found))), epoch
    print(len(found))
"""


@pytest.mark.parametrize("room", [0, 1_000])
def test_a_disk_that_is_full_costs_the_cache_and_nothing_else(room: int, path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(path), str(tmp_path / "cache"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == (f"{ROWS}\n{ROWS}\n", 0), done.stderr
    assert not [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]


BUILDING = """
import sys
from pathlib import Path
from pipelines.loaders.cache import Cache
from pipelines.loaders.loader import open_loader
print("ready", flush=True)
sys.stdin.readline()
for epoch in range(3):
    loader = open_loader(sys.argv[1], batch_size=64, pool=500, cache=Cache(Path(sys.argv[2]), int(sys.argv[3])))
    print(sorted(one for batch in loader.epoch(epoch) for one in batch["id"].tolist()) == list(range(3_000)), flush=True)
"""


@pytest.mark.parametrize("limit", [2**30, 20_000])
def test_two_processes_may_build_one_cache_at_once(limit: int, path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILDING, str(path), str(tmp_path / "cache"), str(limit)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in processes:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    assert [one.communicate(timeout=60)[0] for one in processes] == ["True\nTrue\nTrue\n"] * 2
    assert not list((tmp_path / "cache").rglob(".*"))
    assert sum(one.stat().st_size for one in (tmp_path / "cache").rglob("*") if one.is_file()) <= limit
