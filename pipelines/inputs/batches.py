"""Training batches: features and labels as numpy arrays, streamed from Parquet in bounded memory.

A loader with stages: positives (optional), negatives, features, unknown keys, crosses (pipelines.loaders.negatives,
pipelines.inputs.batch_stages). The number of rows per loader batch depends on its positives, so large batches are made and cut into batches
of `batch_size` rows; the last may be smaller. No row is lost or doubled, and each positive has all of its negatives.
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
from pipelines.inputs.batch_stages import LABEL, UNKNOWN_SHARE, CrossStage, GatherStage, PositivesStage, UnknownIdsStage, columns_of
from pipelines.inputs.bloom_filter import LikedItems
from pipelines.inputs.tables import Codes, FeatureTable
from pipelines.loaders.chunks import open_chunks
from pipelines.loaders.columns import Column
from pipelines.loaders.loader import Loader
from pipelines.loaders.memory import MEBIBYTE
from pipelines.loaders.negatives import Negatives

_AT_ONCE, _BYTES = 32_768, 4 * MEBIBYTE
"""Maximum rows that stages make at a time, and their bytes, unless a step takes more."""

THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class TrainingBatch:
    columns: Codes
    labels: NDArray[np.float32]
    """Each row's weight in the loss if the row is a positive (1 if the spec has no weights), else 0."""

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: slice) -> TrainingBatch:
        return TrainingBatch({name: column[rows] for name, column in self.columns.items()}, self.labels[rows])


class EpochPosition(NamedTuple):
    """Position in an epoch: a loader batch and the number of its rows already used."""

    batch: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Batches:
    """Batches of an epoch: equal for equal seed and epoch, different in each epoch."""

    path: Path
    graph: Graph
    items: FeatureTable
    users: FeatureTable | None
    """None if users have only a key."""
    batch_size: int
    negatives: int
    seed: int
    shuffle: bool = True
    unknown_users: float = UNKNOWN_SHARE
    unknown_items: float = UNKNOWN_SHARE
    """Share of the rows that show an unknown item."""
    positives: bool = False
    """Drops rows that aren't positives."""
    liked: LikedItems | None = None
    """Likes by `user` and row of the catalogue, which negatives avoid."""
    draw: Callable[[Mapping[str, Column], np.random.Generator], NDArray[Any]] | None = None
    """Draws the negatives' rows of the catalogue; None: uniform."""
    drawable: NDArray[np.int64] | None = None
    """Rows of the catalogue that uniform negatives come from; None: all."""
    memory: int = 512 * MEBIBYTE
    """Bytes that the loader may hold."""
    pool: int | None = None
    """Maximum rows that are shuffled together; None: limited by memory."""

    def epoch(self, number: int) -> Iterator[TrainingBatch]:
        return (batch for batch, _ in self.placed(number))

    def placed(self, number: int, start: EpochPosition = EpochPosition()) -> Iterator[tuple[TrainingBatch, EpochPosition]]:  # noqa: B008  a value
        """Yields each batch from a place on, with the place of the next batch."""
        begun: deque[tuple[int, int, int]] = deque()  # loader batches: number, rows before, rows up to the end
        made = yielded = 0

        def rows() -> Iterator[TrainingBatch]:
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
                after = EpochPosition(begun.popleft()[0] + 1)
            if begun:
                after = EpochPosition(begun[0][0], yielded - begun[0][1])
            yield batch, after

    @property
    def drawable_rows(self) -> NDArray[np.int64]:
        """Rows of the catalogue that uniform negatives come from."""
        return np.arange(len(self.items)) if self.drawable is None else self.drawable

    def rows_per_epoch(self) -> int:
        return self._count[self.positives] + self._count[1] * self.negatives

    @property
    def fingerprint(self) -> str:
        return self.loader.fingerprint

    @cached_property
    def loader(self) -> Loader:
        """Loader with the memory that stages leave, or more if four row groups don't fit into its pool."""
        rows, a_row = max(1, self._count[0]), 4 + sum(4 * (feature.width or 1) for feature in self.graph.features)
        at_once = self.batch_size * max(1, min(_AT_ONCE, _BYTES // a_row) // self.batch_size)
        made = 2 * at_once * a_row * (3 * THREADS + 1)  # batches being made and waiting; the allocator keeps as much
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
        gathered, crosses = GatherStage(self.graph, self.items, self.users), CrossStage(self.graph)
        hides = self.unknown_users or self.unknown_items
        strangers = (UnknownIdsStage(self.graph, self.unknown_users, self.unknown_items),) if hides else ()
        positives = (PositivesStage(),) if self.positives else ()
        drawing = Negatives(len(self.items), self.negatives, liked=self.liked, draw=self.draw, drawable=self.drawable)
        negatives = (drawing,) if self.negatives else ()
        return (*positives, *negatives, gathered, *strangers, crosses)

    @cached_property
    def _count(self) -> tuple[int, int]:
        """Number of rows, and of positives."""
        rows, positives = pl.scan_parquet(self.path).select(pl.len(), (pl.col("label") > 0).sum()).collect(engine="streaming").row(0)
        return int(rows), int(positives)


def cut(batches: Iterator[TrainingBatch], size: int) -> Iterator[TrainingBatch]:
    """Cuts the rows into batches of `size`; the last may be smaller. Copies only rows across a seam."""
    left: list[TrainingBatch] = []
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


def _joined(parts: list[TrainingBatch]) -> TrainingBatch:
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return TrainingBatch(columns, np.concatenate([part.labels for part in parts]))


def _batch(columns: dict[str, Any]) -> TrainingBatch:
    labels = columns.pop(LABEL)
    return TrainingBatch(columns, labels)
