"""The loader's cache: the same batches as from Parquet, made anew where it isn't whole, within its limit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.cache import Cache
from pipelines.loaders.chunks import Chunks
from pipelines.loaders.columns import ListColumn
from pipelines.loaders.loader import Loader, open_loader


def write(path: Path, rows: int = 400, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)

    def lists(longest: int, values: Any, kind: Any) -> pa.Array:
        offsets = np.append(0, np.cumsum(random.integers(0, longest + 1, rows))).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, pa.array(np.resize(values, offsets[-1]), kind))

    table = {
        "id": pa.array(np.arange(rows)),
        "code": pa.array(random.integers(0, 9, rows), pa.int32()),
        "number": pa.array(random.random(rows), pa.float32()),
        "truth": pa.array(random.random(rows) < 0.5),
        "few": lists(3, np.arange(200), pa.int64()),
        "more": lists(16, np.arange(70_000), pa.int32()),
        "many": lists(300, np.arange(70_000) - 5, pa.int32()),
        "numbers": lists(5, random.random(99), pa.float64()),
        "truths": lists(4, [True, False, False], pa.bool_()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(random.random(3 * rows), pa.float32()), 3),
    }
    pq.write_table(pa.table(table), path, row_group_size=64)
    return path


def told(loader: Loader, epoch: int = 0) -> list[dict[str, Any]]:
    def plain(column: Any) -> Any:
        if isinstance(column, ListColumn):
            return (column.values.dtype.str, column.values.tolist(), column.offsets.tolist())
        return (column.dtype.str, column.tolist())

    return [{name: plain(column) for name, column in batch.items()} for batch in loader.epoch(epoch)]


def none_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("it read Parquet")

    monkeypatch.setattr(Chunks, "read", read)


@pytest.mark.requirement("T-01")
def test_it_gives_what_parquet_gives_and_reads_nothing_twice(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, shuffle in enumerate([True, False]):
        with subtests.test(shuffle=shuffle):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write(folder / "rows.parquet")
            plain = open_loader(path, batch_size=50, pool=150, shuffle=shuffle)
            known = [told(plain, epoch) for epoch in range(3)]
            cached = open_loader(path, batch_size=50, pool=150, shuffle=shuffle, cache=Cache(folder / "cache"))
            assert told(cached, 0) == known[0]
            with monkeypatch.context() as patch:
                none_is_read(patch)
                assert [told(cached, epoch) for epoch in range(3)] == known
                other = open_loader(path, batch_size=50, pool=150, shuffle=shuffle, cache=Cache(folder / "cache"), threads=1)
                assert told(other, 2) == known[2]


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*/*.arrow"))


def test_what_is_not_whole_is_made_anew(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, harm in enumerate(["truncated", "empty", "a byte", "the end", "no file"]):
        with subtests.test(harm=harm):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write(folder / "rows.parquet")
            known = told(open_loader(path, batch_size=50))
            told(open_loader(path, batch_size=50, cache=Cache(folder / "cache")))
            broken = kept(folder)[3]
            whole = broken.read_bytes()
            at = whole.index(np.arange(192, 256).tobytes()) + 16  # among the ids
            harmed = {
                "truncated": whole[: len(whole) // 2],
                "empty": b"",
                "a byte": whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :],
                "the end": whole[:-1] + b"x",
            }
            if harm == "no file":
                broken.unlink()
            else:
                broken.write_bytes(harmed[harm])
            assert told(open_loader(path, batch_size=50, cache=Cache(folder / "cache"))) == known
            assert broken.read_bytes() == whole


def test_another_file_at_the_same_place_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet")
    cache = Cache(tmp_path / "cache")
    told(open_loader(path, batch_size=50, cache=cache))
    write(path, seed=1)
    assert told(open_loader(path, batch_size=50, cache=cache)) == told(open_loader(path, batch_size=50))


def test_its_limit_holds_and_the_oldest_goes_first(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first.parquet"), write(tmp_path / "second.parquet", seed=1)
    told(open_loader(first, batch_size=50, cache=Cache(tmp_path / "cache")))
    (folder,) = (tmp_path / "cache").iterdir()
    whole = sum(one.stat().st_size for one in folder.iterdir())
    os.utime(folder, ns=(1, 1))
    known = told(open_loader(second, batch_size=50))
    tight = Cache(tmp_path / "cache", limit=whole // 2)
    assert told(open_loader(second, batch_size=50, cache=tight)) == known
    assert not folder.exists()
    assert 0 < sum(one.stat().st_size for one in kept(tmp_path)) <= whole // 2
    assert told(open_loader(second, batch_size=50, cache=tight)) == known
    nothing = Cache(tmp_path / "cache", limit=0)
    assert told(open_loader(first, batch_size=50, cache=nothing)) == told(open_loader(first, batch_size=50))


def test_what_was_left_half_written_is_swept(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet")
    cache = Cache(tmp_path / "cache")
    told(open_loader(path, batch_size=50, cache=cache))
    old, new = (kept(tmp_path)[0].with_name(name) for name in (".0.arrow.1.1", ".1.arrow.2.2"))
    for one in (old, new):
        one.write_bytes(b"half")
    os.utime(old, (1, 1))
    told(open_loader(path, batch_size=50, cache=cache))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_folder_that_can_not_be_written_is_done_without(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet")
    (tmp_path / "cache").write_text("a file stands where the folder would be")
    assert told(open_loader(path, batch_size=50, cache=Cache(tmp_path / "cache"))) == told(open_loader(path, batch_size=50))
