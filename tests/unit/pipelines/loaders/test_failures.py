"""What goes wrong around a loader: it ends in one error, leaves nothing behind, and the next epoch is whole."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
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


def left() -> tuple[int, list[str]]:
    """Files that are open, and threads of loaders."""
    gc.collect()
    threads = [one.name for one in threading.enumerate() if one.name.startswith(("decoding", "assembling", "fetch", "opening"))]
    return psutil.Process().num_fds(), threads


class Broken(Exception):
    pass


def failing(step: int) -> Any:
    """A stage that fails in a batch."""
    count = iter(range(10**6))

    def stage(batch: Any, _: Any) -> Any:
        if next(count) == step:
            raise Broken("the stage's own words")
        return batch

    return stage


def test_an_error_of_a_stage_is_the_callers_and_leaves_nothing_behind(subtests: pytest.Subtests, path: Path) -> None:
    for threads in [1, 4]:
        with subtests.test(threads=threads):
            before = left()
            loader = open_loader(path, batch_size=64, pool=500, threads=threads, stages=(failing(20),))
            with pytest.raises(Broken, match="the stage's own words"):
                ids(loader)
            assert left() == before
            assert sorted(ids(loader)) == list(range(ROWS)), "the next epoch is whole"


def test_who_stops_in_mid_epoch_leaves_no_threads_and_no_files(subtests: pytest.Subtests, path: Path, tmp_path: Path) -> None:
    for number, how in enumerate(["closed", "forgotten", "error"]):
        with subtests.test(how=how):
            folder = tmp_path / str(number)
            folder.mkdir()
            before = left()
            cache = Cache(folder / "cache")
            loader = open_loader(path, batch_size=64, pool=500, cache=cache)
            batches = loader.epoch(0)
            next(batches)
            if how == "closed":
                batches.close()  # type: ignore[attr-defined]
            elif how == "error":
                with pytest.raises(Broken):
                    batches.throw(Broken())  # type: ignore[attr-defined]
            del batches
            assert left() == before
            assert [one.name for one in folder.rglob(".*")] == [], "nothing is half written"
            assert sorted(ids(loader)) == list(range(ROWS))


def test_two_epochs_of_one_loader_at_once_are_those_of_two_loaders(path: Path, tmp_path: Path) -> None:
    loader = open_loader(path, batch_size=64, pool=500, cache=Cache(tmp_path / "cache"))
    alone = [ids(open_loader(path, batch_size=64, pool=500), number) for number in (0, 1)]
    found: list[list[int]] = [[], []]
    for one, other in zip(loader.epoch(0), loader.epoch(1), strict=True):
        found[0] += one["id"].tolist()  # type: ignore[union-attr]
        found[1] += other["id"].tolist()  # type: ignore[union-attr]
    assert found == alone
    threads = [threading.Thread(target=lambda at=at: found.__setitem__(at, ids(loader, at))) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_a_broken_file_of_the_cache_is_made_anew(subtests: pytest.Subtests, path: Path, tmp_path: Path) -> None:
    for number, how in enumerate(["cut", "flipped", "empty", "gone"]):
        with subtests.test(how=how):
            folder = tmp_path / str(number)
            folder.mkdir()

            def loader(cache: Path = folder / "cache") -> Loader:
                return open_loader(path, batch_size=64, pool=500, cache=Cache(cache))

            known = [ids(loader(), number) for number in (0, 1)]
            files = sorted(one for one in (folder / "cache").rglob("*") if one.is_file())
            assert files
            whole = {one: one.read_bytes() for one in files}
            random = np.random.default_rng(0)
            for one, content in whole.items():
                if how == "gone":
                    one.unlink()
                    continue
                broken = bytearray(content)
                if how == "flipped":
                    broken[random.integers(0, len(broken))] ^= 1 << random.integers(0, 8)
                one.write_bytes(broken[: {"cut": int(random.integers(1, len(broken))), "empty": 0}.get(how)])
            assert [ids(loader(), number) for number in (0, 1)] == known


def test_a_process_that_may_open_few_files_reads_many(tmp_path: Path) -> None:
    for at in range(60):
        pq.write_table(pa.table({"id": np.arange(at * 10, at * 10 + 10)}), tmp_path / f"{at:02}.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(one) for one in os.listdir("/proc/self/fd"))  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, hard))
    try:
        assert sorted(ids(open_loader(tmp_path, batch_size=64, threads=4))) == list(range(600))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_pickled_loader_reads_the_same_rows_of_its_shard(path: Path, tmp_path: Path) -> None:
    """As it is sent to another process: before and after its first epoch."""
    loader = open_loader(path, batch_size=64, pool=500, shard=Shard(1, 2), cache=Cache(tmp_path / "cache"), corrupt="skip")
    for _ in range(2):
        sent: Loader = pickle.loads(pickle.dumps(loader))
        assert ids(sent) == ids(loader) and len(ids(loader)) == ROWS // 2
        assert loader.skipped.rows == sent.skipped.rows == 0


def test_a_full_disk_costs_the_cache_and_no_row(subtests: pytest.Subtests, path: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for limit in (0, 1_000):
            with subtests.test(limit=limit):
                cache = tmp_path / f"cache-{limit}"
                loader = open_loader(path, batch_size=64, pool=500, cache=Cache(cache))
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
                try:
                    found = [sorted(ids(loader, number)) for number in (0, 1)]
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                assert found == [list(range(ROWS))] * 2
                assert not [one for one in cache.rglob("*") if one.is_file()]
    finally:
        signal.signal(signal.SIGXFSZ, usual)
