"""Row groups that turn out to be corrupt: named, or left out and counted, and an epoch is as exact as before."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.loaders.cache import Cache
from pipelines.loaders.chunks import Corrupt, OpenFile, open_chunks
from pipelines.loaders.columns import ListColumn
from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.plan import Shard
from shared.domain.errors import BadData, EyasError, Invalid

CASES = int(os.environ.get("EYAS_CASES", "25"))


def write(path: Path, first: int, rows: int, group: int) -> Path:
    ids = np.arange(first, first + rows)
    some = pa.array([[one % 7] * (one % 4) for one in ids.tolist()], pa.list_(pa.int32()))
    pq.write_table(
        pa.table({"id": ids, "some": some}),
        path,
        row_group_size=group,
        write_page_checksum=True,
        use_dictionary=False,
        write_statistics=False,
    )
    return path


def flip(path: Path, group: int, column: int = 0) -> None:
    """One bit of a group's page."""
    meta = pq.ParquetFile(path).metadata.row_group(group).column(column)
    content = bytearray(path.read_bytes())
    content[meta.data_page_offset + meta.total_compressed_size - 2] ^= 16
    path.write_bytes(content)


def told(batch: Any) -> list[tuple[int, tuple[int, ...]]]:
    some = batch["some"]
    assert isinstance(some, ListColumn)
    return list(zip(batch["id"].tolist(), (tuple(one.tolist()) for one in np.split(some.values, some.offsets[1:-1])), strict=True))


def epoch(loader: Loader, number: int = 0, start: int = 0) -> list[list[tuple[int, tuple[int, ...]]]]:
    return [told(one) for one in list(loader.epoch(number, start))]


def right(rows: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
    return all(some == (one % 7,) * (one % 4) for one, some in rows)


@pytest.mark.requirement("T-01")
def test_a_corrupt_group_stops_an_epoch_or_is_left_out_counted_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "rows.parquet", 0, 100, 20)
    flip(path, 3)
    with pytest.raises(Corrupt, match=r"rows.parquet: row group 3 is corrupt: "):
        epoch(open_loader(path, batch_size=10))
    loader = open_loader(path, batch_size=10, corrupt="skip", stages=(lambda batch, _: batch,))
    assert loader.columns["some"].lists
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            batches = epoch(loader, number)
            assert [len(one) for one in batches] == [8] * 10
            found = [row for one in batches for row in one]
            assert right(found) and sorted(one for one, _ in found) == [*range(60), *range(80, 100)]
    assert (loader.skipped.groups, loader.skipped.rows, loader.skipped.files) == (1, 20, 0)
    assert [one.name for one in loader.skipped.lost.values()] == [f"{path}: row group 3"]
    assert len(caplog.records) <= 1


def test_a_file_without_its_end_is_left_out_when_it_is_opened(tmp_path: Path) -> None:
    for at in range(3):
        write(tmp_path / f"{at}.parquet", 100 * at, 100, 20)
    broken = tmp_path / "0.parquet"
    broken.write_bytes(broken.read_bytes()[:-9])
    with pytest.raises(Corrupt, match=r"0.parquet: footer is missing or damaged"):
        open_loader(tmp_path)
    loader = open_loader(tmp_path, batch_size=16, corrupt="skip")
    assert sorted(one for batch in epoch(loader) for one, _ in batch) == list(range(100, 300))
    assert (loader.skipped.files, loader.skipped.groups, loader.skipped.rows) == (1, 0, 0)
    with pytest.raises(Invalid, match="corrupt: 'ignore' must be stop or skip"):
        open_chunks(tmp_path, corrupt="ignore")  # type: ignore[arg-type]
    for at in range(3):
        (tmp_path / f"{at}.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadData, match=r"0.parquet: footer is missing .*all other files are unreadable too"):
        open_loader(tmp_path, corrupt="skip")


def test_a_file_whose_end_says_what_cannot_be_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(2):
        write(tmp_path / f"{at}.parquet", 100 * at, 100, 20)
    real = OpenFile.ranges

    def ranges(opened: OpenFile, group: int, columns: Sequence[str]) -> Any:
        found = real(opened, group, columns)
        return [(first, last + 10**9) for first, last in found] if opened.file.name.endswith("1.parquet") and group == 2 else found

    monkeypatch.setattr(OpenFile, "ranges", ranges)
    with pytest.raises(Corrupt, match=r"1.parquet: row group 2: footer is damaged: the position lies outside the file"):
        open_loader(tmp_path)
    loader = open_loader(tmp_path, batch_size=16, corrupt="skip")
    assert sorted(one for batch in epoch(loader) for one, _ in batch) == list(range(100))
    assert loader.skipped.files == 1


def test_batches_of_which_every_row_is_lost_end_the_epoch(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", 0, 100, 20)
    flip(path, 1)
    with pytest.raises(BadData, match=r"only 0 rows are left for 2 batches from step 2 on.*larger pool"):
        epoch(open_loader(path, batch_size=10, pool=20, shuffle=False, corrupt="skip"))
    found = epoch(open_loader(path, batch_size=10, pool=40, shuffle=False, corrupt="skip"))
    assert [one for batch in found for one, _ in batch] == [*range(20), *range(40, 100)]
    assert [len(one) for one in found] == [5, 5, 5, 5, 10, 10, 10, 10, 10, 10]


@pytest.mark.requirement("T-01", "T-03", "L-01")
@settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_lost_all_else_comes_once_the_same_from_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("rows")
    files, group = data.draw(st.lists(st.integers(1, 80), min_size=1, max_size=3)), data.draw(st.integers(3, 30))
    groups = [(at, one) for at, rows in enumerate(files) for one in range(-(-rows // group))]
    bad = data.draw(st.sets(st.sampled_from(groups), max_size=3))
    paths, known, first = [], set(), 0
    for at, rows in enumerate(files):
        paths.append(write(folder / f"{at}.parquet", first, rows, group))
        known |= {first + one for one in range(rows) if (at, one // group) not in bad}
        first += rows
    whole = open_chunks(paths)
    pool, batch, world = data.draw(st.sampled_from([1, 40, 100, None])), data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    shuffle, seed = data.draw(st.booleans()), data.draw(st.integers(0, 99))
    cache = Cache(folder / "cache") if data.draw(st.booleans()) else None
    if sum(files) < world:
        return

    def loaders(rank: int, threads: int) -> Loader:
        shard = Shard(rank, world)
        return Loader(open_chunks(paths), batch, 10**8, pool, seed, shuffle, shard=shard, threads=threads, corrupt="skip", cache=cache)

    sound = [epoch(replace(loaders(rank, 2), chunks=whole, cache=None)) for rank in range(world)]
    for one in bad:
        flip(paths[one[0]], one[1])
    found, lost = [], False
    for rank in range(world):
        try:
            batches = epoch(loaders(rank, 1))
        except BadData as error:
            assert "corrupt row groups had the others" in str(error)
            lost = True
            continue
        assert batches == epoch(loaders(rank, 4)) == epoch(loaders(rank, 2))
        assert len(batches) == len(sound[rank]) and all(batches)
        start = data.draw(st.integers(0, len(batches)))
        assert epoch(loaders(rank, 2), start=start) == batches[start:]
        assert bad or batches == sound[rank]
        found += [row for one in batches for row in one]
    assert right(found)
    numbers = [one for one, _ in found]
    assert lost or sorted(numbers) == sorted(known)
    assert len(set(numbers)) == len(numbers) and set(numbers) <= known


@settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_flipped_bits_anywhere_are_refused_or_change_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """With checksums of pages; what they don't cover are the headers and the end, which say how to read."""
    path = write(tmp_path_factory.mktemp("rows") / "rows.parquet", 0, 200, 50)
    known = epoch(open_loader(path, batch_size=32))
    content = bytearray(path.read_bytes())
    meta = pq.ParquetFile(path).metadata.row_group(data.draw(st.integers(0, 3))).column(data.draw(st.integers(0, 1)))
    end = meta.data_page_offset + meta.total_compressed_size
    for place in data.draw(st.sets(st.integers(1, meta.total_compressed_size - 60), min_size=1, max_size=4)):
        content[end - place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=r"row group \d is corrupt: .*"):
        assert epoch(open_loader(path, batch_size=32)) == known


@settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_file_broken_in_any_way_gives_one_line_or_rows(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = write(tmp_path_factory.mktemp("rows") / "rows.parquet", 0, 200, 50)
    content = bytearray(path.read_bytes())
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, pages - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[: cut if data.draw(st.booleans()) else None])
    try:
        epoch(open_loader(path, ["id", "some"], batch_size=32))
    except EyasError as error:
        assert "\n" not in str(error) and "rows.parquet" in str(error)
