"""Batches of Parquet, shuffled, decoded and put together in the background, in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipelines.loaders.arena import Arena
from pipelines.loaders.cache import Cache, Kept
from pipelines.loaders.chunks import Chunks, Corrupt, open_chunks
from pipelines.loaders.columns import Column, Empty, Held, Lists, joined
from pipelines.loaders.decoding import Nulls
from pipelines.loaders.doors.layout import Chosen
from pipelines.loaders.files import Paths
from pipelines.loaders.kinds import Described, Kind, described, described_by, kinds
from pipelines.loaders.plan import Left, Part, Plan, Pool, Shard
from pipelines.loaders.skipping import Corruption, Lost, Skipped, without
from shared.domain.errors import BadData, Invalid

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.loaders.doors.torch import TorchBatches

MEBIBYTE = 2**20
Rows = Mapping[str, Held]
Columns = dict[str, Column]
Stage = Callable[[Columns, np.random.Generator], Columns]
"""What is made of a batch, in the loader's threads; drawn by numbers that are the same whoever draws them."""


@dataclass(frozen=True)
class Loader:
    """Equal settings give equal batches, whatever the number of threads. `memory` is all that it holds at a time, in bytes: half of what is
    left beside decoding is the pool whose rows are shuffled, half the one that is read meanwhile."""

    chunks: Chunks
    batch_size: int = 32_768
    memory: int = 512 * MEBIBYTE
    pool: int | None = None
    """Rows of the pool, or a few more; None: as many as memory allows."""
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    shard: Shard = field(default_factory=Shard)
    threads: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    cache: Cache | None = None
    stages: tuple[Stage, ...] = ()
    corrupt: Corruption = "stop"
    """What to do where a row group can't be read: see skipping.py."""

    @cached_property
    def plan(self) -> Plan:
        rows = (self._memory.pool - self._memory.largest) // self._memory.a_row
        pool = max(1, rows if self.pool is None else min(rows, self.pool))
        return Plan([one.rows for one in self.chunks.chunks], self.batch_size, pool, self.seed, self.shuffle, self.drop_last, self.shard)

    @cached_property
    def orders(self) -> Orders:
        return Orders(self.seed, self.plan.sizes, self._memory.orders)

    @cached_property
    def kept(self) -> Kept | None:
        """What the cache has of its chunks."""
        return self.cache.of(self.chunks.digest) if self.cache is not None else None

    @cached_property
    def skipped(self) -> Skipped:
        """What was left out so far, for it is corrupt."""
        return Skipped({one.name: one for one in self.chunks.lost})

    @cached_property
    def _memory(self) -> Memory:
        return Memory.shared_out(self.memory, self.chunks, self.batch_size, self.cache is not None)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.plan.steps

    @cached_property
    def columns(self) -> dict[str, Described]:
        """What a batch has: as the files say, or as a few rows show that have gone through the stages."""
        reads = _Reads(self, 0)
        full = (at for at, one in enumerate(self.chunks.chunks) if one.rows and self.stages)
        rows = next((rows for at in full if (rows := reads.part(Part(at, 0, self.chunks.chunks[at].rows), np.empty))), None)
        if rows is None:
            return described(self.chunks.schema)
        return described_by(_Batches(self, 0).batch(0, [rows], [0], [min(self.batch_size, _count(rows))]))

    def kinds(self, label: str | None = None) -> dict[str, Kind]:
        """What each column is to a model."""
        return kinds(self.columns, label)

    @property
    def fingerprint(self) -> str:
        """Of all that decides which rows a batch has."""
        return hashlib.sha256(repr((self.plan, sorted(self.orders.often), self.chunks.columns)).encode()).hexdigest()

    def epoch(self, number: int, start: int = 0) -> Iterator[Columns]:
        """From the batch `start` on, as if those before it had been taken."""
        decoding = ThreadPoolExecutor(self._memory.decoders(self.threads), "decoding")
        assembling = ThreadPoolExecutor(self.threads, "assembling")
        reads, make = _Reads(self, number), _Batches(self, number)
        pools = (pool for pool in self.plan.pools(number) if pool.step + len(pool.takes) > start)
        read: deque[_Read] = deque()
        made: deque[Future[Columns]] = deque()
        arenas = [self._arena() for _ in range(2)]
        left: Rows | None = None
        try:
            while True:
                while arenas and (pool := next(pools, None)) is not None:
                    arena = arenas.pop()
                    read.append(_Read(pool, arena, [decoding.submit(reads.part, part, arena.empty) for part in pool.parts]))
                if not read:
                    return
                now = read.popleft()
                parts = [reads.left(now.pool.left) if left is None else left, *(one.result() for one in now.parts)]
                now = replace(now, pool=without(now.pool, reads.lost, (self.seed, number), self.shuffle))
                for step, (at, takes) in enumerate(now.slices, now.pool.step):
                    if step >= start:
                        made.append(assembling.submit(make.batch, step, parts, at, takes))
                        if len(made) > self._memory.ahead(self.threads):
                            yield made.popleft().result()
                while made:
                    yield made.popleft().result()
                left = {name: one.take(now.pool.order) for name, one in _cut(parts, *now.rest).items()}
                now.arena.clear()
                arenas.append(now.arena)
        finally:
            for workers in (decoding, assembling):
                workers.shutdown(cancel_futures=True)
            self._spare.extend([*arenas, *(one.arena for one in read)])

    @cached_property
    def _spare(self) -> list[Arena]:
        return []

    def _arena(self) -> Arena:
        """One that an epoch before has left, or a new one."""
        try:
            arena = self._spare.pop()
        except IndexError:
            return Arena(min(self._memory.pool, self.chunks.size) + self.chunks.room)
        arena.clear()
        return arena

    def as_numpy(
        self, label: str | None = None, lists: Chosen = "offsets", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
    ) -> Iterator[Any]:
        """Batches of arrays: see doors/plain.py."""
        from pipelines.loaders.doors.plain import as_numpy

        return as_numpy(self, label, lists, epochs, start)

    def as_arrow(self, epochs: int | None = 1, start: tuple[int, int] = (0, 0)) -> Iterator[pa.RecordBatch]:
        """Record batches of Arrow: see doors/plain.py."""
        from pipelines.loaders.doors.plain import as_arrow

        return as_arrow(self, epochs, start)

    def as_dataset(
        self, label: str | None = None, lists: Chosen = "ragged", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
    ) -> Any:
        """A tf.data.Dataset: see doors/tensorflow.py."""
        from pipelines.loaders.doors.tensorflow import as_dataset

        return as_dataset(self, label, lists, epochs, start)

    def as_keras(self, label: str | None = None, lists: Chosen = "padded", start: tuple[int, int] = (0, 0)) -> Any:
        """For `fit` of a Keras model, as x and as validation_data: see doors/keras.py."""
        from pipelines.loaders.doors.keras import as_keras

        return as_keras(self, label, lists, start)

    @property
    def rows(self) -> int:
        """Of this shard in an epoch."""
        return self.plan.own

    def as_torch(self, label: str | None = None, **settings: Any) -> TorchBatches:
        """An IterableDataset of PyTorch; `settings`: see as_torch in doors/torch.py."""
        from pipelines.loaders.doors.torch import as_torch

        return as_torch(self, label, **settings)


@dataclass(frozen=True)
class Memory:
    """Bytes: of all that a loader holds, of a pool, of permutations that are used often, of the largest chunk, of what decoding one takes,
    of a row and of a batch at most."""

    whole: int
    pool: int
    orders: int
    largest: int
    decoding: int
    a_row: int
    batch: int

    @classmethod
    def shared_out(cls, whole: int, chunks: Chunks, batch_size: int, cached: bool = False) -> Memory:
        """The pool doesn't depend on whether there is a cache."""
        largest = max((one.size for one in chunks.chunks), default=0)
        # A column is there as it is read, as Arrow and as it is held, with an order of the rows; what goes into a cache is held whole.
        column = 3 * max((one.widest for one in chunks.chunks), default=0) + 8 * max((one.rows for one in chunks.chunks), default=0)
        decoding = column + (largest if cached else 0)
        a_row = max((-(-one.size // one.rows) for one in chunks.chunks if one.rows), default=1)
        batch = a_row * min(batch_size, chunks.rows)
        orders = whole // 16
        # A batch is there in parts, put together, and made ready.
        pool = (whole - orders - max(3 * whole // 16, column + 4 * batch)) // 2
        if pool < largest or whole - orders - 2 * pool < decoding + 4 * batch:
            enough = max(-(-16 * (2 * largest + column + 4 * batch) // 15), -(-8 * largest // 3), -(-16 * (decoding + 4 * batch) // 3))
            raise Invalid(
                f"memory: {whole / MEBIBYTE:.0f} MiB are too few for row groups of up to {largest / MEBIBYTE:.0f} MiB and batches of"
                f" {batch / MEBIBYTE:.0f} MiB{', with a cache' if cached else ''}: give {-(-enough // MEBIBYTE)} MiB, or write smaller row"
                " groups"
            )
        return cls(whole, pool, orders, largest, decoding, a_row, batch)

    @property
    def _beside(self) -> int:
        return self.whole - self.orders - 2 * self.pool

    def decoders(self, threads: int) -> int:
        return max(1, min(threads, (self._beside - 4 * self.batch) // max(1, self.decoding)))

    def ahead(self, threads: int) -> int:
        """Batches."""
        room = self._beside - self.decoding * self.decoders(threads)
        return max(1, min(2 * threads + 1, room // max(1, 2 * self.batch) - 1))


@dataclass(frozen=True)
class _Read:
    """A pool that is being read."""

    pool: Pool
    arena: Arena
    parts: list[Future[Rows]]

    @property
    def slices(self) -> Iterator[tuple[list[int], list[int]]]:
        """Of each batch: where it begins in each part, and how many rows it takes."""
        begins = np.cumsum(self.pool.takes, axis=0) - self.pool.takes
        return zip(begins.tolist(), self.pool.takes.tolist(), strict=True)

    @property
    def rest(self) -> tuple[list[int], list[int]]:
        there = np.array([len(self.pool.left), *map(len, self.pool.parts)])
        taken = self.pool.takes.sum(axis=0)
        return taken.tolist(), (there - taken).tolist()


@dataclass(frozen=True)
class _Reads:
    """What is read of an epoch, each chunk in the order that is drawn for it."""

    loader: Loader
    epoch: int
    local: threading.local = field(default_factory=threading.local)

    @property
    def kept(self) -> Kept | None:
        return self.loader.kept

    lost: set[int] = field(default_factory=set)
    """Chunks that turned out to be corrupt."""

    def part(self, part: Part, empty: Empty) -> Rows:
        """None of its rows, where it is lost."""
        with self._skipping(part.chunk):
            rows = self._chunk(part.chunk)
            if self.loader.shuffle:
                order = self.loader.orders.of(self.epoch, part.chunk, part.first, part.last)
                return {name: one.take(order, empty) for name, one in rows}
            return {name: one.cut(part.first, part.last) for name, one in rows}
        return {}

    @contextlib.contextmanager
    def _skipping(self, chunk: int) -> Iterator[None]:
        try:
            yield
        except Corrupt as error:
            if self.loader.corrupt == "stop":
                raise
            self.lost.add(chunk)
            one = self.loader.chunks.chunks[chunk]
            self.loader.skipped.add(Lost(one.name, one.rows, str(error)))

    def left(self, left: Left) -> Rows:
        """Read anew, where what left it wasn't."""
        parts, of = [], []
        for chunk in np.unique(left.chunks).tolist():
            at = np.flatnonzero(left.chunks == chunk)
            with self._skipping(chunk):
                parts.append(self._places(chunk, left.places[at]))
                of.append(at)
        if not parts:
            return {}
        back = np.argsort(np.concatenate(of))
        return {name: joined([one[name] for one in parts], [slice(None)] * len(parts)).take(back) for name in parts[0]}

    def _places(self, chunk: int, places: NDArray[np.int64]) -> Rows:
        order = self.loader.orders.of(self.epoch, chunk)[places] if self.loader.shuffle else places
        return {name: one.take(order) for name, one in self._chunk(chunk)}

    def _chunk(self, chunk: int) -> Iterable[tuple[str, Held]]:
        if self.kept is None:
            return self.loader.chunks.read(chunk)
        kept = self.kept.get(chunk, self._scratch)
        if kept is not None:
            return kept
        rows = dict(self.loader.chunks.read(chunk))
        self.kept.put(chunk, rows)
        return rows.items()

    def _scratch(self, size: int) -> NDArray[np.uint8]:
        """A thread's own, for a column whose rows are taken out of it at once."""
        if not self.loader.shuffle:
            return np.empty(size, np.uint8)
        if len(getattr(self.local, "scratch", ())) < size:
            self.local.scratch = np.empty(size, np.uint8)
        found: NDArray[np.uint8] = self.local.scratch
        return found


@dataclass(frozen=True)
class _Batches:
    loader: Loader
    epoch: int

    def batch(self, step: int, parts: Sequence[Rows], at: list[int], takes: list[int]) -> Columns:
        columns = {name: one.column() for name, one in _cut(parts, at, takes).items()}
        if self.loader.stages:
            random = np.random.default_rng((self.loader.seed, self.epoch, 4, step, self.loader.shard.rank))
            for stage in self.loader.stages:
                columns = stage(columns, random)
        for one in columns.values():
            if isinstance(one, Lists):
                _ = one.values, one.offsets  # here, not in the thread that waits for them
        return columns


def _count(rows: Rows) -> int:
    return len(next(iter(rows.values())))


def _cut(parts: Sequence[Rows], at: list[int], takes: list[int]) -> Rows:
    """The next rows of each."""
    used = [n for n, take in enumerate(takes) if take]
    slices = [slice(at[n], at[n] + takes[n]) for n in used]
    return {name: joined([parts[n][name] for n in used], slices) for name in (parts[used[0]] if used else ())}


class Orders:
    """A permutation for each chunk and epoch. Where many have as many rows, each is one drawn at random after another one that is turned
    by a number drawn at random: as likely to be any as if it was drawn alone, at a fifth of the price."""

    FEW = 4

    def __init__(self, seed: int, sizes: Sequence[int], room: int) -> None:
        """`room`: bytes for those that are drawn once."""
        self._seed, self._sizes = seed, sizes
        self.often: set[int] = set()
        for rows, times in sorted(Counter(sizes).items(), key=lambda one: (-one[1], one[0])):
            size = 3 * self.FEW * 8 * rows
            if times > 4 * self.FEW and size <= room:
                self.often.add(rows)
                room -= size
        self._drawn: dict[int, list[NDArray[np.int64]]] = {}
        self._lock = threading.Lock()

    def of(self, epoch: int, chunk: int, first: int = 0, last: int | None = None) -> NDArray[np.int64]:
        rows = self._sizes[chunk]
        random = np.random.default_rng((self._seed, epoch, 3, chunk))
        if rows not in self.often:
            return random.permutation(rows)[first:last]
        drawn = self._few(rows)
        one, other, turn = random.integers(0, (self.FEW, self.FEW, rows)).tolist()
        found: NDArray[np.int64] = drawn[one][turn : turn + rows].take(drawn[self.FEW + other][first:last])
        return found

    def _few(self, rows: int) -> list[NDArray[np.int64]]:
        """The first ones twice over, so that they can be turned."""
        with self._lock:
            if rows not in self._drawn:
                random = np.random.default_rng((self._seed, 2, rows))
                drawn = [random.permutation(rows) for _ in range(2 * self.FEW)]
                self._drawn[rows] = [np.concatenate([one, one]) for one in drawn[: self.FEW]] + drawn[self.FEW :]
            return self._drawn[rows]


def open_loader(
    paths: Paths,
    columns: Sequence[str] | None = None,
    *,
    nulls: Nulls | None = None,
    filesystem: Any = None,
    corrupt: Corruption = "stop",
    **settings: Any,
) -> Loader:
    """`paths`: what `find_files` takes. `columns`, `nulls`: what `open_chunks` takes. `settings`: those of Loader."""
    chunks = open_chunks(paths, columns, nulls=nulls, filesystem=filesystem, corrupt=corrupt)
    loader = Loader(chunks, corrupt=corrupt, **settings)
    rows, world = chunks.rows, loader.shard.world
    if not rows:
        raise BadData(f"there are no rows in {paths}")
    if rows < world:
        raise BadData(f"there are {rows} rows in {paths}: too few to be shared by {world}")
    if not len(loader):
        raise BadData(
            f"there are {rows:,} rows in {paths}: no full batch of {loader.batch_size:,}: make batches smaller or keep the last one"
        )
    return loader
