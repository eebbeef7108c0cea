"""Rows shaped like MovieLens 25M: a log of ratings for etl, and coded rows to train on. The same number gives the same rows.

There are as many users and films as in MovieLens 25M, however many rows; both are popular by a power law. Rows are in the order of time.
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

USERS = 162_541
FILMS, CODED_FILMS = 59_047, 62_423
"""Films of the log, and of the coded rows."""
GENRES = (
    *("Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir"),
    *("Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western", "(none)"),
)
START, SECONDS = 789_652_009, 25 * 365 * 86_400
"""The first second of the log, and how many it lasts."""
MOST_GENRES = 10
GROUP, FILE = 1 << 17, 1 << 20
"""Rows of a row group, and of a file. A group takes about 3 MB of memory: decoding costs more than opening it, and a pool has several."""
_SHARES_OF_LENGTHS = (0.37, 0.34, 0.18, 0.07, 0.025, 0.009, 0.003, 0.0015, 0.001, 0.0005)
"""Of the coded films have one genre, two and so on."""
_LOG = pa.schema(
    {"userId": pa.int64(), "movieId": pa.int64(), "rating": pa.float64(), "timestamp": pa.int64(), "genres": pa.list_(pa.string())}
)
_CODED = pa.schema(
    {
        **{"user": pa.int32(), "item": pa.int32(), "rating": pa.float32(), "age": pa.float32()},
        **{"genres": pa.list_(pa.int32()), "label": pa.float32()},
    }
)


class Popularity:
    """Draws codes whose frequency falls with a power of their rank."""

    def __init__(self, random: np.random.Generator, count: int, power: float) -> None:
        shares = np.cumsum(1.0 / (np.arange(count) + 20) ** power)
        self._shares, self._codes = shares / shares[-1], random.permutation(count)

    def draw(self, random: np.random.Generator, size: int) -> NDArray[np.int64]:
        ranks = np.searchsorted(self._shares, random.random(size), side="right")
        codes: NDArray[np.int64] = self._codes[np.minimum(ranks, len(self._codes) - 1)].astype(np.int64)
        return codes


def write_log(path: Path, count: int, seed: int = 25) -> Path:
    """Writes ratings. No two have the same second: `timestamp` identifies a row. At most a row group is in memory."""
    random = np.random.Generator(np.random.PCG64(seed))
    users, films = Popularity(random, USERS, 0.7), Popularity(random, FILMS, 1.0)
    genres = _genre_names(random)
    gap = SECONDS // count
    written, second = 0, START
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, _LOG, compression="zstd") as writer:
        while written < count:
            size = min(GROUP, count - written)
            seconds = second + np.cumsum(random.integers(1, 2 * gap, size))
            second = int(seconds[-1])
            film = films.draw(random, size)
            user, rating = users.draw(random, size) + 1, random.integers(1, 11, size) / 2
            arrays = [*map(pa.array, (user, film + 1, rating, seconds)), genres.take(pa.array(film))]
            writer.write_batch(pa.record_batch(arrays, schema=_LOG))
            written += size
    return partial.replace(path)


def _genre_names(random: np.random.Generator) -> Any:
    """One to four for each film of the log, two on average, none twice."""
    lengths = random.choice([1, 2, 3, 4], FILMS, p=[0.36, 0.36, 0.2, 0.08])
    names = [[GENRES[code] for code in random.choice(len(GENRES), length, replace=False)] for length in lengths.tolist()]
    return pa.array(names, pa.list_(pa.string()))


def write_coded(folder: Path, count: int, seed: int = 25) -> Path:
    """Writes coded rows, a row group at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, count, FILE)):
        with pq.ParquetWriter(folder / f"{number:04}.parquet", _CODED, compression="snappy") as writer:
            for start in range(first, min(first + FILE, count), GROUP):
                writer.write_batch(coded_rows(seed, start, min(GROUP, first + FILE - start, count - start)))
    return folder


def coded_groups(count: int, seed: int = 25) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, GROUP):
        yield coded_rows(seed, start, min(GROUP, count - start))


def coded_rows(seed: int, start: int, size: int) -> pa.RecordBatch:
    """Each row group has its own seed."""
    random = np.random.Generator(np.random.PCG64((seed, start)))
    item = _popularity(CODED_FILMS, 1.0).draw(random, size).astype(np.int32)
    rating = (random.integers(1, 11, size) / 2).astype(np.float32)
    user = _popularity(USERS, 0.7).draw(random, size).astype(np.int32)
    values, offsets = genres_of_films()
    genres = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)).take(pa.array(item))
    columns = [user + 1, item + 1, rating, random.random(size, np.float32), genres, (rating >= 4).astype(np.float32)]
    return pa.record_batch([column if column is genres else pa.array(column) for column in columns], schema=_CODED)


@cache
def genres_of_films() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Values and offsets, of all coded films: one to ten genres, two on average, none twice, none zero."""
    random = np.random.Generator(np.random.PCG64(62))
    lengths = random.choice(np.arange(1, MOST_GENRES + 1), CODED_FILMS, p=_SHARES_OF_LENGTHS)
    order = random.random((CODED_FILMS, len(GENRES))).argsort(axis=1)[:, :MOST_GENRES] + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return order[np.arange(MOST_GENRES)[None, :] < lengths[:, None]].astype(np.int32), offsets


@cache
def _popularity(count: int, power: float) -> Popularity:
    return Popularity(np.random.Generator(np.random.PCG64(count)), count, power)
