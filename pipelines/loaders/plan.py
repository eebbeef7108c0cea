"""Plans which rows make up which batch of an epoch, from sizes and a seed alone, before reading.

A chunk's rows have a random order, drawn when the chunk is read. A pool is a group of chunks; a batch takes the next rows of each chunk, as
many as a draw without replacement gives. This equals a shuffle of the pool's rows, but only copies slices. The rows that do not fill a
batch go into the next pool, as a small chunk. So batches do not depend on the number of threads or on where reading begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """One of several shards that share an epoch by rows."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True)
class ChunkRows:
    """Rows of a chunk, as places in the chunk's random order."""

    chunk: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class LeftoverRows:
    """Rows that the pool before left: each row's chunk, and its place in the chunk."""

    chunks: Ints
    places: Ints

    def __len__(self) -> int:
        return len(self.chunks)


@dataclass(frozen=True)
class PoolPlan:
    """`takes` is [batches, 1 + parts]: how many rows each batch takes of the left rows and of each part."""

    step: int
    """Step of the first batch."""
    left: LeftoverRows
    parts: tuple[ChunkRows, ...]
    takes: Ints
    order: Ints
    """Order of the rows that the pool leaves, counted over the left rows and then each part's last rows."""


@dataclass(frozen=True)
class Plan:
    """Plan of epochs; `sizes` are the chunks' rows, `pool` is the least number of rows of a pool."""

    sizes: Sequence[int]
    batch: int
    pool: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    shard: Shard = field(default_factory=Shard)

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return int(sum(self.sizes))

    @property
    def own(self) -> int:
        """Rows of this shard in an epoch."""
        begin, end = self._bounds
        return min(end - begin, self.steps * self.batch) if self.drop_last else end - begin

    @property
    def _bounds(self) -> tuple[int, int]:
        """Begin and end of the shard, in an epoch's order."""
        return self.rows * self.shard.rank // self.shard.world, self.rows * (self.shard.rank + 1) // self.shard.world

    @property
    def steps(self) -> int:
        """Batches of an epoch, the same for every shard: the last batch may have a row more."""
        least = self.rows // self.shard.world
        if self.drop_last:
            return least // self.batch
        return -(-least // self.batch) if least else min(1, self.rows)

    def pools(self, epoch: int) -> Iterator[PoolPlan]:
        parts, step, left = self._parts(epoch), 0, LeftoverRows(np.empty(0, np.int64), np.empty(0, np.int64))
        remaining = sum(map(len, parts))
        for number, group in enumerate(_grouped(parts, self.pool)):
            remaining -= sum(map(len, group))
            there = np.array([len(left), *map(len, group)], np.int64)
            random = np.random.default_rng((self.seed, epoch, 1, number))
            sizes = self._batches(int(there.sum()), self.steps - step, last=remaining == 0)
            takes = drawn(there, sizes, random) if self.shuffle else in_order(there, sizes)
            rest = there - takes.sum(axis=0)
            order = random.permutation(rest.sum()) if self.shuffle else np.arange(rest.sum())
            yield PoolPlan(step, left, tuple(group), takes, order)
            left, step = _left(left, group, rest, order), step + len(sizes)

    def _batches(self, rows: int, steps: int, last: bool) -> list[int]:
        """Returns the sizes of a pool's batches."""
        if self.drop_last:
            return [self.batch] * min(rows // self.batch, steps)
        if not last or not steps:  # the last batch is in the last pool, which may be only the extra row
            return [self.batch] * min(rows // self.batch, max(0, steps - 1))
        return [self.batch] * (steps - 1) + [rows - self.batch * (steps - 1)]

    def _parts(self, epoch: int) -> list[ChunkRows]:
        """Returns the shard's rows, chunk by chunk in this epoch's order; the shards together have all rows."""
        order = np.arange(len(self.sizes))
        if self.shuffle:
            np.random.default_rng((self.seed, epoch, 0)).shuffle(order)
        (begin, end), at = self._bounds, 0
        parts = []
        for chunk in order.tolist():
            first, last = max(begin - at, 0), min(end - at, self.sizes[chunk])
            if first < last:
                parts.append(ChunkRows(chunk, first, last))
            at += self.sizes[chunk]
        return parts


def _grouped(parts: list[ChunkRows], rows: int) -> Iterator[list[ChunkRows]]:
    group: list[ChunkRows] = []
    for part in parts:
        group.append(part)
        if sum(map(len, group)) >= rows:
            yield group
            group = []
    if group:
        yield group


def drawn(there: Ints, sizes: list[int], random: np.random.Generator) -> Ints:
    """Draws without replacement."""
    rest, takes = there.copy(), np.zeros((len(sizes), len(there)), np.int64)
    for at, size in enumerate(sizes):
        takes[at] = random.multivariate_hypergeometric(rest, size, method="marginals")
        rest -= takes[at]
    return takes


def in_order(there: Ints, sizes: list[int]) -> Ints:
    """Takes rows in order."""
    ends = np.cumsum(there)
    reached = np.append(0, np.cumsum(np.array(sizes, np.int64)))
    consumed = np.clip(reached[:, None] - (ends - there)[None, :], 0, there[None, :])
    counts: Ints = np.diff(consumed, axis=0)
    return counts


def _left(left: LeftoverRows, group: list[ChunkRows], rest: Ints, order: Ints) -> LeftoverRows:
    """Returns the rows left, in their random order."""
    old = slice(len(left) - int(rest[0]), len(left))
    chunks = np.concatenate([left.chunks[old], *(np.full(n, part.chunk) for part, n in zip(group, rest[1:].tolist(), strict=True))])
    places = np.concatenate(
        [left.places[old], *(np.arange(part.last - n, part.last) for part, n in zip(group, rest[1:].tolist(), strict=True))]
    )
    return LeftoverRows(chunks[order], places[order])
