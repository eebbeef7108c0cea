"""Rows to train on, shaped like MovieLens with the genres of each film: the same ones for the same number, written piece by piece.

As many codes of users and items as MovieLens 25M has, both popular by a power law; a film's genres are its own, one to ten, two on
average. Row groups have 131,072 rows, about 3 MB in memory: large enough that opening a group costs nothing beside decoding it, small
enough that a pool is made of several and that each contender's unit of reading fits into any budget. Rows lie in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

USERS, ITEMS, GENRES, MOST = 162_541, 62_423, 20, 10
GROUP, FILE = 1 << 17, 1 << 20
"""Rows of a row group, and of a file."""
_HOW_MANY = (0.37, 0.34, 0.18, 0.07, 0.025, 0.009, 0.003, 0.0015, 0.001, 0.0005)
"""Of the films have one genre, two and so on."""
SCHEMA = pa.schema(
    [
        ("user", pa.int32()),
        ("item", pa.int32()),
        ("rating", pa.float32()),
        ("age", pa.float32()),
        ("genres", pa.list_(pa.int32())),
        ("label", pa.float32()),
    ]
)


def write_rows(folder: Path, count: int, seed: int = 25) -> Path:
    """One row group is in memory at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, count, FILE)):
        with pq.ParquetWriter(folder / f"{number:04}.parquet", SCHEMA, compression="snappy") as writer:
            for start in range(first, min(first + FILE, count), GROUP):
                writer.write_batch(piece(seed, start, min(GROUP, first + FILE - start, count - start)))
    return folder


def pieces(count: int, seed: int = 25) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, GROUP):
        yield piece(seed, start, min(GROUP, count - start))


def piece(seed: int, start: int, size: int) -> pa.RecordBatch:
    """Every row group by a seed of its own."""
    chance = np.random.Generator(np.random.PCG64((seed, start)))
    users, items, (values, offsets) = _popular(USERS, 0.7), _popular(ITEMS, 1.0), genres_of_items()
    item = _drawn(chance, items, size)
    rating = (chance.integers(1, 11, size) / 2).astype(np.float32)
    columns = [
        pa.array(_drawn(chance, users, size) + 1),
        pa.array(item + 1),
        pa.array(rating),
        pa.array(chance.random(size, np.float32)),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)).take(pa.array(item)),
        pa.array((rating >= 4).astype(np.float32)),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


@cache
def genres_of_items() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Values and offsets, of all items; none twice, none zero."""
    chance = np.random.Generator(np.random.PCG64(62))
    counts = chance.choice(np.arange(1, MOST + 1), ITEMS, p=_HOW_MANY)
    order = chance.random((ITEMS, GENRES)).argsort(axis=1)[:, :MOST] + 1
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return order[np.arange(MOST)[None, :] < counts[:, None]].astype(np.int32), offsets


@cache
def _popular(count: int, power: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Cumulated shares that fall with the rank, and who has which rank."""
    chance = np.random.Generator(np.random.PCG64(count))
    shares = np.cumsum(1.0 / (np.arange(count) + 20) ** power)
    return shares / shares[-1], chance.permutation(count).astype(np.int32)


def _drawn(chance: np.random.Generator, popular: tuple[NDArray[Any], NDArray[Any]], size: int) -> NDArray[np.int32]:
    shares, who = popular
    drawn: NDArray[np.int32] = who[np.minimum(np.searchsorted(shares, chance.random(size), side="right"), len(who) - 1)]
    return drawn
