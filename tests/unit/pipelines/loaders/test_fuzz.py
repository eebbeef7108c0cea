"""Any schema, any sizes, any settings: every row comes once an epoch with its lists, the same by whatever reads it and from anywhere.

EYAS_CASES draws more of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pipelines.loaders.cache import Cache
from pipelines.loaders.columns import Column, ListColumn
from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.plan import Shard
from shared.domain.errors import Invalid

CASES = int(os.environ.get("EYAS_CASES", "25"))
DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?"]
SHAPES = ["flat", "lists", "large", "fixed"]
Row = tuple[Any, ...]


def values(random: np.random.Generator, count: int, dtype: str) -> pa.Array:
    """To the ends of their type, and near them; of floats some are missing, and some are no numbers."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return pa.array(random.random(count) < 0.5)
    if kind.kind == "f":
        found = random.normal(size=count).astype(kind)
        found[random.random(count) < 0.1] = np.nan
        found[random.random(count) < 0.1] = -np.inf
        return pa.array(found, mask=random.random(count) < 0.2)
    ends = np.iinfo(kind)
    low, high = [(ends.min, ends.max), (0, 3), (0, min(ends.max, 300)), (ends.min, ends.min + 2)][random.integers(0, 4)]
    return pa.array(random.integers(low, high, count, kind, endpoint=True))


def column(random: np.random.Generator, rows: int, shape: str, dtype: str, longest: int) -> pa.Array:
    if shape == "flat":
        return values(random, rows, dtype)
    if shape == "fixed":
        width = max(1, min(longest, 5))
        return pa.FixedSizeListArray.from_arrays(values(random, rows * width, dtype), width)
    lengths = random.integers(0, longest + 1, rows)
    lengths[random.random(rows) < 0.3] = 0
    offsets = np.append(0, np.cumsum(lengths))
    kind = pa.LargeListArray if shape == "large" else pa.ListArray
    return kind.from_arrays(pa.array(offsets, pa.int64() if shape == "large" else pa.int32()), values(random, offsets[-1], dtype))


def plain(value: Any) -> Any:
    """NaN equals itself, and -0.0 isn't 0.0."""
    if isinstance(value, list):
        return tuple(map(plain, value))
    if value is None:
        return "nan"
    return repr(float(value)) if isinstance(value, float | np.floating) else value


def each(one: Column) -> list[Any]:
    if not isinstance(one, ListColumn):
        return [plain(value) for value in one.tolist()]
    assert len(one.values) == one.lengths.sum() == one.offsets[-1] and one.offsets[0] == 0
    whole = one.values.tolist()
    return [plain(whole[first:last]) for first, last in zip(one.offsets[:-1].tolist(), one.offsets[1:].tolist(), strict=True)]


def rows_of(batch: dict[str, Column]) -> list[Row]:
    assert len({len(one) for one in batch.values()}) == 1
    return list(zip(*(each(batch[name]) for name in sorted(batch)), strict=True))


def epoch(loader: Loader, number: int, start: int = 0) -> list[list[Row]]:
    """All are held until the last one is there: none may lie where another one is written."""
    return [rows_of(one) for one in list(loader.epoch(number, start))]


def write(folder: Path, random: np.random.Generator, files: list[int], group: int, schema: dict[str, tuple[str, str, int]]) -> set[Row]:
    known, first = set(), 0
    for at, rows in enumerate(files):
        columns = {"id": pa.array(np.arange(first, first + rows))}
        columns |= {name: column(random, rows, *one) for name, one in schema.items()}
        pq.write_table(pa.table(columns), folder / f"{at}.parquet", row_group_size=group, use_dictionary=bool(random.integers(0, 2)))
        known |= set(zip(*(map(plain, columns[name].to_pylist()) for name in sorted(columns)), strict=True))
        first += rows
    return known


@pytest.mark.requirement("T-01", "T-02", "T-03", "T-05", "L-01")
@settings(max_examples=CASES, deadline=None, derandomize="EYAS_CASES" not in os.environ, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_row_comes_once_an_epoch_with_its_lists(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    kind = st.tuples(st.sampled_from(SHAPES), st.sampled_from(DTYPES), st.sampled_from([1, 2, 3, 8, 9, 33, 300]))
    schema = {f"c{at}": one for at, one in enumerate(data.draw(st.lists(kind, max_size=4)))}
    files = data.draw(st.lists(st.integers(0, 150), min_size=1, max_size=3).filter(any))
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    known = write(folder, random, files, data.draw(st.integers(1, 60)), schema)
    world, number = data.draw(st.integers(1, min(4, len(known)))), data.draw(st.integers(0, 3))
    about: dict[str, Any] = {
        "batch_size": data.draw(st.integers(1, 80)),
        "pool": data.draw(st.sampled_from([None, 1, 30, 90, 10_000])),
        "seed": data.draw(st.integers(0, 5)),
        "shuffle": data.draw(st.booleans()),
        "drop_last": data.draw(st.booleans()),
        "memory": data.draw(st.sampled_from([60_000, 400_000, 2**29])),
    }
    limit = data.draw(st.sampled_from([None, 3_000, 2**30]))
    found: list[Row] = []
    steps = set()

    def loader(threads: int) -> Loader:
        return open_loader(folder, threads=threads, cache=None if limit is None else Cache(folder / "cache", limit), **about)

    for rank in range(world):
        about["shard"] = Shard(rank, world)
        try:
            one = loader(1)
            steps.add(len(one))
        except Invalid as error:
            note(str(error))
            assert "too few" in str(error) or "no full batch" in str(error)
            return
        batches = epoch(one, number)
        assert len(batches) == len(one) and sum(map(len, batches)) <= one.rows
        assert all(len(some) == one.batch_size for some in batches[:-1]) and all(batches)
        assert not about["drop_last"] or len(batches[-1]) == one.batch_size
        for threads in (2, 4):
            assert epoch(loader(threads), number) == batches
        assert epoch(one, number) == batches, "from what is kept"
        start = data.draw(st.integers(0, len(batches)))
        assert epoch(loader(2), number, start) == batches[start:]
        assert epoch(one, number, start) == batches[start:]
        found += [row for some in batches for row in some]
    assert len(steps) == 1
    assert len(set(found)) == len(found) and set(found) <= known
    assert about["drop_last"] or set(found) == known
