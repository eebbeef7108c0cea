"""Profile of keys: their number, rows per key, a sample, and how much numbers depend on them.

A stable hash selects the sample, so two batches sample the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from pydantic import Field

from pipelines.data.stable_hash import stable_hash
from pipelines.data.validation.grouping import KEY
from shared.contracts.strict import Strict
from shared.domain.soundness import explained

SAMPLED_KEYS = 2048
SIZES = 32
"""Rows per key in powers of two; the last bin holds all larger counts."""


class KeyCounts(Strict):
    count: int
    sizes: tuple[int, ...] = Field(description="Numbers of keys with 1 row, 2 to 3 rows, 4 to 7 rows, and so on.")
    shift: int = Field(description="Leading zeros of the hashes of sampled keys.")
    sample: tuple[int, ...]


class KeySums:
    """Sums over all keys, added part by part: `rows` of each key, sums and squares of numbers."""

    def __init__(self, parts: Iterable[pl.DataFrame], numbers: tuple[str, ...]) -> None:
        self._count, self._rows, self._sizes, self._drawn = 0, 0, [0] * SIZES, pl.Series(KEY, [], pl.Int64)
        self._numbers = {name: [0.0, 0.0, 0.0] for name in numbers}
        for part in parts:
            self._add(part)

    def _add(self, part: pl.DataFrame) -> None:
        self._count += len(part)
        self._rows += int(part["rows"].sum())
        size = pl.col("rows").log(2).floor().cast(pl.Int64).clip(0, SIZES - 1)
        for at, count in part.group_by(size.alias("size")).len().iter_rows():
            self._sizes[at] += count
        drawn = part.filter(is_drawn(pl.col(KEY), self._shift))[KEY].cast(pl.Int64)
        self._drawn = pl.concat([self._drawn, drawn]).to_frame().filter(is_drawn(pl.col(KEY), self._shift))[KEY]
        for name, sums in self._numbers.items():
            sums[0] += float(part[f"{name} sum"].sum())
            sums[1] += float(part[f"{name} squares"].sum())
            sums[2] += float((part[f"{name} sum"] ** 2 / part["rows"]).sum())

    @property
    def _shift(self) -> int:
        return max(0, (self._count // SAMPLED_KEYS).bit_length())

    def keys(self) -> KeyCounts:
        return KeyCounts(count=self._count, sizes=tuple(self._sizes), shift=self._shift, sample=tuple(self._drawn.sort()))

    def tie(self, name: str) -> float:
        """Returns the share of the number's variance that the key explains."""
        total, squares, between = self._numbers[name]
        return round(explained(self._count, self._rows, squares - between, squares - total**2 / self._rows), 4)


def is_drawn(key: pl.Expr, shift: int) -> pl.Expr:
    return stable_hash(key) <= pl.lit((2**64 - 1) >> shift, dtype=pl.UInt64)


def sampled(frame: pl.LazyFrame, key: str, keys: KeyCounts) -> tuple[int, int]:
    """Returns the number of rows whose key hash is in the sample's range, and of those whose key is in the sample."""
    drawn = frame.select(key).filter(is_drawn(pl.col(key), keys.shift)).group_by(key).len().collect(engine="streaming")
    in_sample = drawn.filter(pl.col(key).cast(pl.Int64).is_in(list(keys.sample)))
    return int(drawn["len"].sum()), int(in_sample["len"].sum())
