"""Reads Parquet as shuffled batches: decoded and assembled in background threads, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.loaders.buffer_pool import BufferPool, keep_what_is_freed
from pipelines.loaders.cache import Cache, SelectionCache
from pipelines.loaders.chunks import Chunks
from pipelines.loaders.columns import Column, ListColumn
from pipelines.loaders.kinds import ColumnType, Kind, described, described_by, kinds
from pipelines.loaders.memory import MEBIBYTE, MemoryPlan
from pipelines.loaders.orders import ChunkOrders
from pipelines.loaders.plan import ChunkRows, Plan, Shard
from pipelines.loaders.reading import ChunkReads, PoolReading, Rows, count, cut
from pipelines.loaders.skipping import Corruption, SkipLog, without

Columns = dict[str, Column]
Stage = Callable[[Columns, np.random.Generator], Columns]
"""Returns a batch from a batch, in the loader's threads; its random numbers do not depend on the thread."""


@dataclass(frozen=True)
class EpochReader:
    """Reads epochs; equal settings give equal batches for any number of threads.

    `memory` is the total in bytes. Half of what decoding leaves is the pool whose rows are shuffled, the other half the next pool.
    """

    chunks: Chunks
    batch_size: int = 32_768
    memory: int = 512 * MEBIBYTE
    pool: int | None = None
    """Rows of the pool, or slightly more; None for as many as memory allows."""
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    shard: Shard = field(default_factory=Shard)
    threads: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    cache: Cache | None = None
    stages: tuple[Stage, ...] = ()
    corrupt: Corruption = "stop"
    """What happens if a row group cannot be read: see skipping.py."""
    skipped: SkipLog = field(default_factory=SkipLog, compare=False)
    """Corrupt data that this loader and its adapters have left out so far."""

    @cached_property
    def plan(self) -> Plan:
        rows = (self._memory.pool - self._memory.largest) // self._memory.a_row
        pool = max(1, rows if self.pool is None else min(rows, self.pool))
        return Plan(
            [chunk.rows for chunk in self.chunks.chunks], self.batch_size, pool, self.seed, self.shuffle, self.drop_last, self.shard
        )

    @cached_property
    def orders(self) -> ChunkOrders:
        return ChunkOrders(self.seed, self.plan.sizes, self._memory.orders)

    @cached_property
    def selection_cache(self) -> SelectionCache | None:
        """The cache of these chunks."""
        return self.cache.of(self.chunks.digest) if self.cache is not None else None

    @cached_property
    def _memory(self) -> MemoryPlan:
        return MemoryPlan.shared_out(self.memory, self.chunks, self.batch_size, self.cache is not None)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles only the settings, not the values that follow from them."""
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self.plan.steps

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        """Columns of a batch: from the schema, or from a few rows that pass the stages."""
        full = (at for at, chunk in enumerate(self.chunks.chunks) if chunk.rows and self.stages)
        rows = next((rows for at in full if (rows := self._reads(0).part(ChunkRows(at, 0, self.chunks.chunks[at].rows), np.empty))), None)
        if rows is None:
            return described(self.chunks.schema)
        return described_by(BatchAssembly(self, 0).batch(0, [rows], [0], [min(self.batch_size, count(rows))]))

    def kinds(self, label: str | None = None) -> dict[str, Kind]:
        """Returns the role of each column in a model."""
        return kinds(self.columns, label)

    @property
    def fingerprint(self) -> str:
        """Digest of all that decides the rows of a batch."""
        return hashlib.sha256(repr((self.plan, sorted(self.orders.often), self.chunks.columns)).encode()).hexdigest()

    def epoch(self, number: int, start: int = 0) -> Iterator[Columns]:
        """Yields the epoch's batches from `start` on, the same as without a start."""
        keep_what_is_freed()
        decoding = ThreadPoolExecutor(self._memory.decoders(self.threads), "decoding")
        # Copies are fastest in few threads, stages in many.
        assembling = ThreadPoolExecutor(self.threads if self.stages else -(-self.threads // 2), "assembling")
        reads, make = self._reads(number), BatchAssembly(self, number)
        pools = (pool for pool in self.plan.pools(number) if pool.step + len(pool.takes) > start)
        read: deque[PoolReading] = deque()
        made: deque[Future[Columns]] = deque()
        arenas = [self._arena() for _ in range(2)]
        left: Rows | None = None
        try:
            while True:
                while arenas and (pool := next(pools, None)) is not None:
                    arena = arenas.pop()
                    read.append(PoolReading(pool, arena, [decoding.submit(reads.part, part, arena.empty) for part in pool.parts]))
                if not read:
                    return
                now = read.popleft()
                parts = [reads.left(now.pool.left) if left is None else left, *(future.result() for future in now.parts)]
                now = replace(now, pool=without(now.pool, reads.lost, (self.seed, number), self.shuffle))
                for step, (at, takes) in enumerate(now.slices, now.pool.step):
                    if step >= start:
                        made.append(assembling.submit(make.batch, step, parts, at, takes))
                        if len(made) > self._memory.ahead(self.threads):
                            yield made.popleft().result()
                while made:
                    yield made.popleft().result()
                left = {name: column.take(now.pool.order) for name, column in cut(parts, *now.rest).items()}
                now.arena.clear()
                arenas.append(now.arena)
        finally:
            for workers in (decoding, assembling):
                workers.shutdown(cancel_futures=True)
            self._spare.extend([*arenas, *(reading.arena for reading in read)])

    def _reads(self, epoch: int) -> ChunkReads:
        return ChunkReads(epoch, self.chunks, self.orders if self.shuffle else None, self.selection_cache, self.corrupt, self.skipped)

    @cached_property
    def _spare(self) -> list[BufferPool]:
        return []

    def _arena(self) -> BufferPool:
        """Returns a buffer pool of an earlier epoch, or a new one."""
        try:
            arena = self._spare.pop()
        except IndexError:
            return BufferPool(min(self._memory.pool, self.chunks.size) + self.chunks.room)
        arena.clear()
        return arena

    @property
    def rows(self) -> int:
        """Rows of this shard in an epoch."""
        return self.plan.own


@dataclass(frozen=True)
class BatchAssembly:
    loader: EpochReader
    epoch: int

    def batch(self, step: int, parts: Sequence[Rows], at: list[int], takes: list[int]) -> Columns:
        columns = {name: column.column() for name, column in cut(parts, at, takes).items()}
        if self.loader.stages:
            random = np.random.default_rng((self.loader.seed, self.epoch, 4, step, self.loader.shard.rank))
            for stage in self.loader.stages:
                columns = stage(columns, random)
        for column in columns.values():
            if isinstance(column, ListColumn):
                _ = column.values, column.offsets  # computed here, not in the thread that waits for the batch
        return columns
