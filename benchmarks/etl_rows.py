"""Rows shaped like MovieLens for the ETL benchmark: the same ones for the same number, written piece by piece.

As many users and films as MovieLens 25M has, however many rows there are; both popular by a power law; about two genres a film. Rows lie
in the order of time, as a log of events does, and no two have the same second: `timestamp` names a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

USERS, ITEMS = 162_541, 59_047
GENRES = (
    *("Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir"),
    *("Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western", "(none)"),
)
BEGAN, YEARS = 789_652_009, 25
_PIECE = 1 << 17
SCHEMA = pa.schema(
    [
        ("userId", pa.int64()),
        ("movieId", pa.int64()),
        ("rating", pa.float64()),
        ("timestamp", pa.int64()),
        ("genres", pa.list_(pa.string())),
    ]
)


def write_rows(path: Path, count: int, seed: int = 25) -> Path:
    """At most a piece of the rows is in memory at a time."""
    chance = np.random.Generator(np.random.PCG64(seed))
    users, films = _popular(chance, USERS, 0.7), _popular(chance, ITEMS, 1.0)
    genres = _genres(chance)
    gap = YEARS * 365 * 86_400 // count
    written, second = 0, BEGAN
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
        while written < count:
            size = min(_PIECE, count - written)
            seconds = second + np.cumsum(chance.integers(1, 2 * gap, size))
            second = int(seconds[-1])
            film = _drawn(chance, films, size)
            columns = [
                pa.array(_drawn(chance, users, size) + 1),
                pa.array(film + 1),
                pa.array(chance.integers(1, 11, size) / 2),
                pa.array(seconds),
                genres.take(pa.array(film)),
            ]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            written += size
    return partial.replace(path)


def _popular(chance: np.random.Generator, count: int, power: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Cumulated shares that fall with the rank, and who has which rank."""
    shares = np.cumsum(1.0 / (np.arange(count) + 20) ** power)
    return shares / shares[-1], chance.permutation(count)


def _drawn(chance: np.random.Generator, popular: tuple[NDArray[Any], NDArray[Any]], size: int) -> NDArray[Any]:
    shares, who = popular
    drawn: NDArray[Any] = who[np.minimum(np.searchsorted(shares, chance.random(size), side="right"), len(who) - 1)].astype(np.int64)
    return drawn


def _genres(chance: np.random.Generator) -> Any:
    """One to four a film, two on average, none twice."""
    counts = chance.choice([1, 2, 3, 4], ITEMS, p=[0.36, 0.36, 0.2, 0.08])
    names = [[GENRES[one] for one in chance.choice(len(GENRES), size, replace=False)] for size in counts.tolist()]
    return pa.array(names, pa.list_(pa.string()))
