"""Which rows make up which batch of an epoch: decided from sizes and a seed alone, before anything is read.

A chunk's rows come in an order of their own, drawn when it is read. A pool is some chunks at a time; a batch takes of each of them the
next rows, as many as a draw without replacement gives. That is what shuffling the pool's rows would give, at the price of copying
slices. What a pool has left for less than a batch goes into the next pool, as a small chunk. So batches depend neither on how many threads
read nor on where reading begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """One of several that share an epoch, row by row."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True)
class Part:
    """Rows of a chunk, in the order that is drawn for them."""

    chunk: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Left:
    """What the pool before had left: of which chunk each row is, and its place there."""

    chunks: Ints
    places: Ints

    def __len__(self) -> int:
        return len(self.chunks)


@dataclass(frozen=True)
class Pool:
    """`takes`: [batches, 1 + parts], how many rows each batch takes of what was left and of each part."""

    step: int
    """Of its first batch."""
    left: Left
    parts: tuple[Part, ...]
    takes: Ints
    order: Ints
    """Of what it leaves: its parts' last rows one after the other, the left ones' first."""


@dataclass(frozen=True)
class Plan:
    """`sizes`: rows of each chunk. `pool`: rows of a pool, at least."""

    sizes: Sequence[int]
    batch: int
    pool: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    shard: Shard = field(default_factory=Shard)

    @property
    def rows(self) -> int:
        """Of all shards."""
        return int(sum(self.sizes))

    @property
    def own(self) -> int:
        """Rows that the shard gives in an epoch."""
        begin, end = self._bounds
        return min(end - begin, self.steps * self.batch) if self.drop_last else end - begin

    @property
    def _bounds(self) -> tuple[int, int]:
        """Of the shard, in an epoch's order."""
        return self.rows * self.shard.rank // self.shard.world, self.rows * (self.shard.rank + 1) // self.shard.world

    @property
    def steps(self) -> int:
        """As many for every shard: the last batch may have a row more."""
        least = self.rows // self.shard.world
        if self.drop_last:
            return least // self.batch
        return -(-least // self.batch) if least else min(1, self.rows)

    def pools(self, epoch: int) -> Iterator[Pool]:
        parts, step, left = self._parts(epoch), 0, Left(np.empty(0, np.int64), np.empty(0, np.int64))
        remaining = sum(map(len, parts))
        for number, group in enumerate(_grouped(parts, self.pool)):
            remaining -= sum(map(len, group))
            there = np.array([len(left), *map(len, group)], np.int64)
            random = np.random.default_rng((self.seed, epoch, 1, number))
            sizes = self._batches(int(there.sum()), self.steps - step, last=remaining == 0)
            takes = drawn(there, sizes, random) if self.shuffle else in_order(there, sizes)
            rest = there - takes.sum(axis=0)
            order = random.permutation(rest.sum()) if self.shuffle else np.arange(rest.sum())
            yield Pool(step, left, tuple(group), takes, order)
            left, step = _left(left, group, rest, order), step + len(sizes)

    def _batches(self, rows: int, steps: int, last: bool) -> list[int]:
        """How many rows the batches of a pool have."""
        if self.drop_last:
            return [self.batch] * min(rows // self.batch, steps)
        if not last or not steps:  # the last batch waits for the last pool, which may be the row that is more
            return [self.batch] * min(rows // self.batch, max(0, steps - 1))
        return [self.batch] * (steps - 1) + [rows - self.batch * (steps - 1)]

    def _parts(self, epoch: int) -> list[Part]:
        """The shard's rows, chunk by chunk in this epoch's order; the rows of all shards are all rows."""
        order = np.arange(len(self.sizes))
        if self.shuffle:
            np.random.default_rng((self.seed, epoch, 0)).shuffle(order)
        (begin, end), at = self._bounds, 0
        parts = []
        for chunk in order.tolist():
            first, last = max(begin - at, 0), min(end - at, self.sizes[chunk])
            if first < last:
                parts.append(Part(chunk, first, last))
            at += self.sizes[chunk]
        return parts


def _grouped(parts: list[Part], rows: int) -> Iterator[list[Part]]:
    group: list[Part] = []
    for part in parts:
        group.append(part)
        if sum(map(len, group)) >= rows:
            yield group
            group = []
    if group:
        yield group


def drawn(there: Ints, sizes: list[int], random: np.random.Generator) -> Ints:
    """Without replacement."""
    rest, takes = there.copy(), np.zeros((len(sizes), len(there)), np.int64)
    for at, size in enumerate(sizes):
        takes[at] = random.multivariate_hypergeometric(rest, size, method="marginals")
        rest -= takes[at]
    return takes


def in_order(there: Ints, sizes: list[int]) -> Ints:
    """What comes first is taken first."""
    ends = np.cumsum(there)
    reached = np.append(0, np.cumsum(np.array(sizes, np.int64)))
    consumed = np.clip(reached[:, None] - (ends - there)[None, :], 0, there[None, :])
    return np.diff(consumed, axis=0)


def _left(left: Left, group: list[Part], rest: Ints, order: Ints) -> Left:
    """In the order that is drawn for them."""
    old = slice(len(left) - int(rest[0]), len(left))
    chunks = np.concatenate([left.chunks[old], *(np.full(n, part.chunk) for part, n in zip(group, rest[1:].tolist(), strict=True))])
    places = np.concatenate(
        [left.places[old], *(np.arange(part.last - n, part.last) for part, n in zip(group, rest[1:].tolist(), strict=True))]
    )
    return Left(chunks[order], places[order])
