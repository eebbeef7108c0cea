"""Blocked Bloom filter of likes: two bytes per like, one memory read per query.

Likes are always found. A few in a thousand other pairs, always the same ones, count as liked too: harmless for negatives, as another item
is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.inputs.tables import placed

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_LIKES_A_WORD = 4
_BITS = 4
"""Bits that a like sets in its 64-bit word."""


@dataclass(frozen=True)
class LikedItems:
    words: Words

    @classmethod
    def empty(cls, likes: int) -> Self:
        """Returns an empty filter for `likes` likes."""
        return cls(np.zeros(max(1, -(-likes // _LIKES_A_WORD)), np.uint64))

    @classmethod
    def of(cls, parts: Iterable[tuple[Ints, Ints]]) -> Self:
        """Builds a filter from users and items, given as any whole numbers."""
        there = list(parts)
        made = cls.empty(sum(len(users) for users, _ in there))
        for users, items in there:
            made.add(users, items)
        return made

    @property
    def size(self) -> int:
        return self.words.nbytes

    def add(self, users: NDArray[Any], items: NDArray[Any]) -> None:
        places, bits = self._places(users, items)
        np.bitwise_or.at(self.words, places, bits)

    def __call__(self, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.bool_]:
        places, bits = self._places(users, items)
        words = self.words.take(places)
        words &= bits
        return np.equal(words, bits)

    def _places(self, users: NDArray[Any], items: NDArray[Any]) -> tuple[Ints, Words]:
        mix = mixed(mixed(users.astype(np.uint64)) + items.astype(np.uint64))
        bits = np.left_shift(np.uint64(1), mix & np.uint64(63))
        for at in range(1, _BITS):
            bits |= np.left_shift(np.uint64(1), (mix >> np.uint64(6 * at)) & np.uint64(63))
        mix >>= np.uint64(32)
        mix *= np.uint64(len(self.words))
        mix >>= np.uint64(32)
        return mix.view(np.int64), bits


def read_liked(rows: Path, history: Path | None, items: Ints) -> LikedItems:
    """Returns likes by user and row of the catalogue: those of train.parquet and, in a warm run, earlier ones of the history. `items`:
    sorted keys of the catalogue."""
    files = [(rows, "item_row", "label"), *([(history, "item", "before")] if history is not None else [])]
    counts = [pl.scan_parquet(path).select((pl.col(label) > 0).sum()).collect(engine="streaming").item() for path, _, label in files]
    bloom = LikedItems.empty(sum(counts))
    for path, item, label in files:
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(columns=["user", item, label]):
                user, of, liked = (part.column(name).to_numpy(zero_copy_only=False) for name in ("user", item, label))
                user, of = user[liked > 0], of[liked > 0]
                row = of if item == "item_row" else placed(items, of)
                there = row < len(items)
                bloom.add(user[there], row[there])
    return bloom


def mixed(keys: Words) -> Words:
    """Mixes keys so that each bit depends on all bits."""
    mix = keys * np.uint64(0x9E3779B97F4A7C15)
    mix ^= mix >> np.uint64(32)
    mix *= np.uint64(0xD6E8FEB86659FD93)
    mix ^= mix >> np.uint64(32)
    return mix
