"""Reads pools of rows from row groups and cuts them into batches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipelines.loaders.buffer_pool import BufferPool
from pipelines.loaders.cache import SelectionCache
from pipelines.loaders.chunks import Chunks, Corrupt
from pipelines.loaders.columns import Empty, PackedColumn, joined
from pipelines.loaders.orders import ChunkOrders
from pipelines.loaders.plan import ChunkRows, LeftoverRows, PoolPlan
from pipelines.loaders.skipping import Corruption, SkipLog, SkippedData

Rows = Mapping[str, PackedColumn]


@dataclass(frozen=True)
class PoolReading:
    """A pool that is being read."""

    pool: PoolPlan
    arena: BufferPool
    parts: list[Future[Rows]]

    @property
    def slices(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yields for each batch where it begins in each part, and how many rows it takes."""
        begins = np.cumsum(self.pool.takes, axis=0) - self.pool.takes
        return zip(begins.tolist(), self.pool.takes.tolist(), strict=True)

    @property
    def rest(self) -> tuple[list[int], list[int]]:
        there = np.array([len(self.pool.left), *map(len, self.pool.parts)])
        consumed = self.pool.takes.sum(axis=0)
        return consumed.tolist(), (there - consumed).tolist()


@dataclass(frozen=True)
class ChunkReads:
    """Reads an epoch's chunks, each in its random order."""

    epoch: int
    chunks: Chunks
    orders: ChunkOrders | None
    """Random orders; None for file order."""
    cache: SelectionCache | None
    corrupt: Corruption
    skipped: SkipLog
    lost: set[int] = field(default_factory=set)
    """Chunks that are corrupt."""
    _local: threading.local = field(default_factory=threading.local)

    def part(self, part: ChunkRows, empty: Empty) -> Rows:
        """Returns the part's rows, or nothing if its chunk is lost."""
        with self._skipping(part.chunk):
            rows = self._chunk(part.chunk)
            if self.orders is not None:
                room = self._scratch("order", 8 * len(part)).view(np.int64)
                order = self.orders.of(self.epoch, part.chunk, part.first, part.last, room)
                return {name: column.take(order, empty) for name, column in rows}
            return {name: column.cut(part.first, part.last) for name, column in rows}
        return {}

    @contextlib.contextmanager
    def _skipping(self, chunk: int) -> Iterator[None]:
        try:
            yield
        except Corrupt as error:
            if self.corrupt == "stop":
                raise
            self.lost.add(chunk)
            lost_chunk = self.chunks.chunks[chunk]
            self.skipped.add(SkippedData(lost_chunk.name, lost_chunk.rows, str(error)))

    def left(self, left: LeftoverRows) -> Rows:
        """Reads the rows that an earlier pool left, if that pool was not read."""
        parts, of = [], []
        for chunk in np.unique(left.chunks).tolist():
            at = np.flatnonzero(left.chunks == chunk)
            with self._skipping(chunk):
                parts.append(self._places(chunk, left.places[at]))
                of.append(at)
        if not parts:
            return {}
        back = np.argsort(np.concatenate(of))
        return {name: joined([part[name] for part in parts], [slice(None)] * len(parts)).take(back) for name in parts[0]}

    def _places(self, chunk: int, places: NDArray[np.int64]) -> Rows:
        order = places if self.orders is None else self.orders.of(self.epoch, chunk)[places]
        return {name: column.take(order) for name, column in self._chunk(chunk)}

    def _chunk(self, chunk: int) -> Iterator[tuple[str, PackedColumn]]:
        """Yields the chunk's columns, from the cache as far as possible."""
        if self.cache is None:
            yield from self.chunks.read(chunk)
            return
        read = set()
        for name, column in self.cache.get(chunk, self._column):
            read.add(name)
            yield name, column
        if len(read) < len(self.chunks.columns):
            rows = dict(self.chunks.read(chunk))
            self.cache.put(chunk, rows)
            yield from ((name, column) for name, column in rows.items() if name not in read)

    def _column(self, size: int) -> NDArray[np.uint8]:
        """Returns memory for a cached column, reused after its rows are taken."""
        return np.empty(size, np.uint8) if self.orders is None else self._scratch("column", size)

    def _scratch(self, name: str, size: int) -> NDArray[np.uint8]:
        """Returns a buffer of this thread."""
        buffer: NDArray[np.uint8] | None = getattr(self._local, name, None)
        if buffer is None or len(buffer) < size:
            buffer = np.empty(size, np.uint8)
            setattr(self._local, name, buffer)
        return buffer[:size]


def count(rows: Rows) -> int:
    return len(next(iter(rows.values())))


def cut(parts: Sequence[Rows], at: list[int], takes: list[int]) -> Rows:
    """Returns the next rows of each part, joined."""
    used = [n for n, take in enumerate(takes) if take]
    slices = [slice(at[n], at[n] + takes[n]) for n in used]
    return {name: joined([parts[n][name] for n in used], slices) for name in (parts[used[0]] if used else ())}
