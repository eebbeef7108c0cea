"""What a loader gives: every row once with its lists, the same by any number of threads and from any batch on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipelines.loaders.chunks import open_chunks
from pipelines.loaders.columns import Column, ListColumn, most, pack_lists
from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.memory import MEBIBYTE, MemoryPlan
from pipelines.loaders.orders import ChunkOrders
from pipelines.loaders.plan import Shard
from pipelines.loaders.stream import Stream
from shared.domain.errors import Invalid

KINDS: dict[str, Any] = {"int32": np.int32, "int64": np.int64, "float32": np.float32, "float64": np.float64, "uint8": np.uint8}


def lists(random: np.random.Generator, rows: int, longest: int, kind: str) -> pa.Array:
    offsets = np.append(0, np.cumsum(random.integers(0, longest + 1, rows))).astype(np.int32)
    values = random.integers(0, 200, offsets[-1]).astype(KINDS[kind])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def write(folder: Path, files: list[int], group: int, seed: int, longest: int, kind: str) -> tuple[list[Path], dict[int, Any]]:
    random, paths, known, first = np.random.default_rng(seed), [], {}, 0
    for number, rows in enumerate(files):
        ids = np.arange(first, first + rows)
        some = lists(random, rows, longest, kind)
        table = pa.table({"id": pa.array(ids), "some": some, "weight": pa.array(random.random(rows, np.float32))})
        paths.append(folder / f"{number}.parquet")
        pq.write_table(table, paths[-1], row_group_size=group)
        known |= dict(zip(ids.tolist(), zip(some.to_pylist(), table["weight"].to_pylist(), strict=True), strict=True))
        first += rows
    return paths, known


def rows_of(batch: dict[str, Column]) -> list[tuple[int, Any]]:
    some = batch["some"]
    assert isinstance(some, ListColumn)
    assert len(some.values) == some.lengths.sum()
    assert isinstance(batch["id"], np.ndarray)
    assert isinstance(batch["weight"], np.ndarray)
    each = [one.tolist() for one in np.split(some.values, some.offsets[1:-1])] if len(some) else []
    return list(zip(batch["id"].tolist(), zip(each, batch["weight"].tolist(), strict=True), strict=True))


@pytest.mark.requirement("T-01", "T-02", "T-03", "T-05", "L-01")
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_row_comes_once_with_its_lists_whatever_reads_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    files = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=3))
    group, batch, world = data.draw(st.integers(5, 40)), data.draw(st.integers(1, 50)), data.draw(st.integers(1, 3))
    assume(not sum(files) or sum(files) >= world)  # open_loader refuses fewer rows than shards
    kind, longest, shuffle = (
        data.draw(st.sampled_from(sorted(KINDS))),
        data.draw(st.sampled_from([0, 1, 3, 9, 300])),
        data.draw(st.booleans()),
    )
    paths, known = write(tmp_path_factory.mktemp("rows"), files, group, data.draw(st.integers(0, 99)), longest, kind)
    pool, seed = data.draw(st.sampled_from([1, 70, None])), data.draw(st.integers(0, 9))
    chunks, found = open_chunks(paths), []
    for rank in range(world):
        loaders = [Loader(chunks, batch, 10**8, pool, seed, shuffle, shard=Shard(rank, world), threads=threads) for threads in (1, 2, 4)]
        batches = [[rows_of(one) for one in loader.epoch(2)] for loader in loaders]
        assert batches[0] == batches[1] == batches[2]
        assert len(batches[0]) == len(loaders[0])
        start = data.draw(st.integers(0, len(batches[0])))
        assert [rows_of(one) for one in loaders[0].epoch(2, start)] == batches[0][start:]
        found += [row for one in batches[0] for row in one]
    assert len(found) == len(known)
    assert dict(found) == known


@pytest.mark.requirement("T-03")
def test_a_stream_goes_on_in_another_process(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, [60, 60], 20, 1, 3, "int32")

    def stream(seed: int = 1) -> Stream:
        return Stream(open_loader(paths, batch_size=16, pool=40, seed=seed))

    whole = stream()
    epochs = [[rows_of(one) for one in whole] for _ in range(3)]
    assert epochs[0] != epochs[1]
    first = stream()
    for at, _batch in enumerate(first):
        if at == 4:
            break
    state = json.loads(json.dumps(first.state_dict()))
    assert (state["epoch"], state["step"]) == (0, 5)
    second = stream()
    second.load_state_dict(state)
    assert [rows_of(one) for one in second] == epochs[0][5:]
    assert [rows_of(one) for one in second] == epochs[1]
    with pytest.raises(Invalid, match="other rows or settings"):
        stream(seed=2).load_state_dict(state)


@pytest.mark.requirement("L-01")
def test_orders_are_permutations_and_any_row_may_come_anywhere() -> None:
    sizes = [50] * 20 + [7]
    places = np.zeros((50, 50))
    for seed in range(400):
        orders, epoch = ChunkOrders(seed, sizes, 8 * 4 * 50), seed % 7
        drawn = [orders.of(epoch, chunk) for chunk in range(21)]
        assert orders.often == {50}
        assert all(sorted(one.tolist()) == list(range(len(one))) for one in drawn)
        assert (orders.of(epoch, 5, 10, 20, np.empty(10, np.int64)) == drawn[5][10:20]).all()
        for one in drawn[:20:5]:
            places[np.arange(50), one] += 1
    assert not ChunkOrders(0, sizes, 8 * 4 * 50 - 1).often
    # 1,600 drawn: each place has each row 32 times, within what a chi-square of 49 x 49 degrees allows.
    assert abs(((places - 32) ** 2 / 32).sum() - 49 * 49) < 5 * np.sqrt(2 * 49 * 49)


@pytest.mark.requirement("T-01")
def test_too_little_memory_says_how_much_is_enough(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, [60], 20, 1, 3, "int32")
    with pytest.raises(Invalid, match=r"memory: 0 MiB are too few .* set 1 MiB"):
        len(open_loader(paths, memory=100))


def test_columns_may_be_called_as_they_like_and_lie_beside_others_that_cannot_be_loaded(tmp_path: Path) -> None:
    table = pa.table({"of.a": [{"x": 1, "y": [2]}], "f.b": [[3, 4]], "f.a": [5], "f": [6]})
    pq.write_table(table, tmp_path / "one.parquet")
    (batch,) = open_loader(tmp_path / "one.parquet", ["f.a", "f.b"]).epoch(0)
    assert set(batch) == {"f.a", "f.b"} and rows_of({"id": batch["f.a"], "some": batch["f.b"], "weight": batch["f.a"]}) == [
        (5, ([3, 4], 5))
    ]


@pytest.mark.requirement("T-01")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 60), max_size=40), st.sampled_from(sorted(KINDS)), st.integers(1, 70_000))
def test_lists_take_no_more_than_is_set_aside_for_them(lengths: list[int], kind: str, most_value: int) -> None:
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    values = (np.arange(offsets[-1]) * 7919 % most_value).astype(KINDS[kind])
    packed = pack_lists(values, offsets)
    assert packed.size <= most(len(lengths), len(values), values.itemsize)
    column = packed.take(np.arange(len(lengths))).column()
    assert isinstance(column, ListColumn)
    assert column.dtype == column.values.dtype == values.dtype
    assert (column.values == values).all()
    assert (column.offsets == offsets).all()


@pytest.mark.requirement("T-01")
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 10**9), st.integers(1, 40), st.integers(1, 10**6), st.booleans(), st.integers(1, 16))
def test_what_is_said_to_be_enough_memory_is_and_is_kept(size: int, columns: int, batch: int, cached: bool, threads: int) -> None:
    """Of row groups of any size with columns of any, in whatever memory is asked for."""
    chunks = _Sizes(rows=max(1, size // 40), size=size, widest=-(-size // columns), fetched=size if columns % 2 else 0)
    try:
        memory = MemoryPlan.shared_out(512 * MEBIBYTE, chunks, batch, cached)  # type: ignore[arg-type]
    except Invalid as error:
        match = re.search(r"set (\d+) MiB", str(error))
        assert match is not None
        enough = int(match[1])
        assert enough > 512
        memory = MemoryPlan.shared_out(enough * MEBIBYTE, chunks, batch, cached)  # type: ignore[arg-type]
    assert memory.pool >= size
    used = memory.orders + 2 * memory.pool + memory.decoding * memory.decoders(threads) + 2 * memory.batch * (memory.ahead(threads) + 1)
    assert used <= memory.total
    assert memory.pool == MemoryPlan.shared_out(memory.total, chunks, batch, cached=False).pool  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Sizes:
    rows: int
    size: int
    widest: int
    fetched: int

    @property
    def chunks(self) -> list[_Sizes]:
        return [self]
