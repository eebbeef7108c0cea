"""One batch contract for training: features and labels as numpy arrays, streamed from Parquet with bounded memory.

A loader with stages: positives alone where they are asked for, negatives, features, strangers, crosses (pipelines.loaders.negatives,
pipelines.inputs.batch_stages). How many rows come out of a batch of the data depends on the positives in it; so the loader makes large
batches, and they are cut into batches of `batch_size` rows for a step; the last one may be smaller. No row is lost or doubled, and each
positive has all of its negatives.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.features.graph import Graph
from pipelines.inputs.batch_stages import LABEL, UNKNOWN_SHARE, Crossed, Gathered, Positives, Strangers, columns_of
from pipelines.inputs.bloom_filter import LikedItems
from pipelines.inputs.tables import Catalogue, Codes
from pipelines.loaders.chunks import open_chunks
from pipelines.loaders.columns import Column
from pipelines.loaders.loader import Loader
from pipelines.loaders.memory import MEBIBYTE
from pipelines.loaders.negatives import Negatives

_AT_ONCE, _BYTES = 32_768, 4 * MEBIBYTE
"""Rows that stages make at a time at most, and their bytes, if a step takes less."""

THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Batch:
    columns: Codes
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: slice) -> Batch:
        return Batch({name: column[rows] for name, column in self.columns.items()}, self.labels[rows])


class Place(NamedTuple):
    """Where an epoch goes on: a batch of the loader, and how many rows of it were taken."""

    batch: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Batches:
    """One epoch's batches: equal for an equal seed and epoch, different in each epoch."""

    path: Path
    graph: Graph
    items: Catalogue
    users: Catalogue | None
    """None where nothing but the key is known of them."""
    batch_size: int
    negatives: int
    seed: int
    shuffle: bool = True
    unknown_share: float = UNKNOWN_SHARE
    positives: bool = False
    """Whether other rows are left out."""
    liked: LikedItems | None = None
    """By `user` and row of the catalogue: no negative is one of these."""
    draw: Callable[[Mapping[str, Column], np.random.Generator], NDArray[Any]] | None = None
    """Rows of the catalogue that are negatives of these rows; drawn evenly if None."""
    memory: int = 512 * MEBIBYTE
    """Bytes that the loader may hold."""
    pool: int | None = None
    """Rows that are shuffled among each other at most; as many as the memory takes if None."""

    def epoch(self, number: int) -> Iterator[Batch]:
        return (batch for batch, _ in self.placed(number))

    def placed(self, number: int, start: Place = Place()) -> Iterator[tuple[Batch, Place]]:  # noqa: B008  a value
        """From a place on: each batch, and where the next one begins."""
        begun: deque[tuple[int, int, int]] = deque()  # of the loader's batches: its number, the rows before it, those up to its end
        made = yielded = 0

        def rows() -> Iterator[Batch]:
            nonlocal made
            for at, columns in enumerate(self.loader.epoch(number, start.batch), start.batch):
                skipped = start.rows if at == start.batch else 0
                batch = _batch(columns).part(slice(skipped, None))
                begun.append((at, made - skipped, made + len(batch)))
                made += len(batch)
                yield batch

        after = start
        for batch in cut(rows(), self.batch_size):
            yielded += len(batch)
            while begun and begun[0][2] <= yielded:
                after = Place(begun.popleft()[0] + 1)
            if begun:
                after = Place(begun[0][0], yielded - begun[0][1])
            yield batch, after

    def rows_per_epoch(self) -> int:
        return self._count[self.positives] + self._count[1] * self.negatives

    @property
    def fingerprint(self) -> str:
        return self.loader.fingerprint

    @cached_property
    def loader(self) -> Loader:
        """Its memory is what stages leave of ours; more where four row groups wouldn't fit into its pool."""
        rows, a_row = max(1, self._count[0]), 4 + sum(4 * (feature.width or 1) for feature in self.graph.features)
        at_once = self.batch_size * max(1, min(_AT_ONCE, _BYTES // a_row) // self.batch_size)
        made = 2 * at_once * a_row * (3 * THREADS + 1)  # what is being made, and what waits to be taken; the allocator keeps as much
        with pq.ParquetFile(self.path) as file:
            wanted = columns_of(self.graph, file.schema_arrow.names) + (["user"] if self.negatives and self.liked else [])
        chunks = open_chunks([self.path], wanted)
        batch_size = max(1, at_once * rows // max(rows, self.rows_per_epoch()))
        least = 12 * max(chunk.size for chunk in chunks.chunks) + 4 * min(batch_size, rows) * max(
            chunk.size // chunk.rows + 1 for chunk in chunks.chunks
        )
        memory = max(self.memory - made, self.memory // 2, least)
        return Loader(chunks, batch_size, memory, self.pool, self.seed, self.shuffle, threads=THREADS, stages=self._stages())

    def _stages(self) -> tuple[Any, ...]:
        gathered, crosses = Gathered(self.graph, self.items, self.users), Crossed(self.graph)
        strangers = (Strangers(self.graph, self.unknown_share),) if self.unknown_share else ()
        positives = (Positives(),) if self.positives else ()
        negatives = (Negatives(len(self.items), self.negatives, liked=self.liked, draw=self.draw),) if self.negatives else ()
        return (*positives, *negatives, gathered, *strangers, crosses)

    @cached_property
    def _count(self) -> tuple[int, int]:
        """Rows, and positives among them."""
        rows, positives = pl.scan_parquet(self.path).select(pl.len(), (pl.col("label") > 0).sum()).collect(engine="streaming").row(0)
        return int(rows), int(positives)


def cut(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """The same rows in batches of that size; the last one may be smaller. Only what lies over a seam is copied."""
    left: list[Batch] = []
    for batch in batches:
        missing = (size - sum(map(len, left))) % size if left else 0
        if missing > len(batch):
            left.append(batch)
            continue
        if left:
            yield _joined([*left, batch.part(slice(0, missing))])
        end = missing + (len(batch) - missing) // size * size
        for start in range(missing, end, size):
            yield batch.part(slice(start, start + size))
        left = [batch.part(slice(end, None))] if end < len(batch) else []
    if left:
        yield _joined(left)


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return Batch(columns, np.concatenate([part.labels for part in parts]))


def _batch(columns: dict[str, Any]) -> Batch:
    labels = columns.pop(LABEL)
    return Batch(columns, labels)
