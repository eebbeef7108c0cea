"""One batch contract: code columns and labels as numpy arrays, streamed from Parquet with bounded memory.

Row groups are read in a seeded order into a pool of a few of them; negatives are drawn for the pool's positives, the pool
is shuffled, and batches are cut from it. A pool fits the processor's cache, which makes its random reads cheap. Item
columns are gathered from the catalogue's codes by row number, for positives and negatives alike, so an interaction on
disk is three numbers however many features an item has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.features.graph import Graph
from pipelines.features.vocabulary import UNKNOWN

Codes = dict[str, NDArray[np.int32]]
COLUMNS = ["user_code", "item_row", "label"]
POOL_GROUPS = 4
# This share of rows is shown under the code of unknown users, and another one of unknown items: their vectors learn what holds on average.
UNKNOWN_SHARE = 0.02


@dataclass(frozen=True)
class Batch:
    columns: Codes
    labels: NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """A pool, or a part of one, before features are gathered."""

    user: NDArray[np.int32]
    item_row: NDArray[np.int32]
    label: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label)

    def take(self, index: NDArray[np.int64] | slice) -> Rows:
        return Rows(self.user[index], self.item_row[index], self.label[index])


def join(first: Rows, second: Rows) -> Rows:
    return Rows(
        np.concatenate([first.user, second.user]),
        np.concatenate([first.item_row, second.item_row]),
        np.concatenate([first.label, second.label]),
    )


@dataclass(frozen=True)
class Batches:
    """One epoch's batches: equal for an equal seed and epoch, different in each epoch."""

    path: Path
    items: Codes
    user: str
    item: str
    batch_size: int
    negatives: int
    seed: int
    shuffle: bool = True
    unknown_share: float = UNKNOWN_SHARE

    def epoch(self, number: int) -> Iterator[Batch]:
        random = np.random.default_rng((self.seed, number))
        left: Rows | None = None
        for pool in self._pools(random):
            rows = self._prepared(pool, random)
            rows = join(left, rows) if left is not None and len(left) else rows
            whole = len(rows) - len(rows) % self.batch_size
            for start in range(0, whole, self.batch_size):
                yield self._batch(rows.take(slice(start, start + self.batch_size)), random)
            left = rows.take(slice(whole, None))
        if left is not None and len(left):
            yield self._batch(left, random)

    def rows_per_epoch(self) -> int:
        rows, positives = pl.scan_parquet(self.path).select(pl.len(), pl.col("label").cast(pl.Int64).sum()).collect().row(0)
        return int(rows + positives * self.negatives)

    def _pools(self, random: np.random.Generator) -> Iterator[Rows]:
        with pq.ParquetFile(self.path) as file:
            groups = np.arange(file.num_row_groups)
            if self.shuffle:
                random.shuffle(groups)
            for start in range(0, len(groups), POOL_GROUPS):
                table = file.read_row_groups(groups[start : start + POOL_GROUPS].tolist(), columns=COLUMNS)
                user, row, label = (table.column(name).to_numpy() for name in COLUMNS)
                yield Rows(user, row, label.astype(np.float32))

    def _prepared(self, pool: Rows, random: np.random.Generator) -> Rows:
        if self.negatives:
            users = np.repeat(pool.user[pool.label > 0], self.negatives)
            rows = random.integers(0, self.catalogue, len(users), dtype=np.int32)
            pool = join(pool, Rows(users, rows, np.zeros(len(users), np.float32)))
        return pool.take(random.permutation(len(pool))) if self.shuffle else pool

    def _batch(self, rows: Rows, random: np.random.Generator) -> Batch:
        columns = {name: codes[rows.item_row] for name, codes in self.items.items()} | {self.user: rows.user}
        if self.unknown_share:
            for key in (self.user, self.item):
                hidden = random.random(len(rows)) < self.unknown_share
                columns[key] = np.where(hidden, np.int32(UNKNOWN), columns[key])
        return Batch(columns, rows.label)

    @property
    def catalogue(self) -> int:
        return len(self.items[self.item])


def read_codes(path: Path, graph: Graph) -> Codes:
    """The catalogue's codes: [items] or [items, length] for each item column."""
    frame = pl.read_parquet(path)
    return {one.column: np.ascontiguousarray(frame[one.column].to_numpy(), dtype=np.int32) for one in graph.side("item")}


def encode_users(graph: Graph, users: NDArray[np.int64]) -> NDArray[np.int32]:
    keys, inverse = np.unique(users, return_inverse=True)
    codes = pl.DataFrame({graph.user: keys}).select(graph.feature(graph.user).transform())[graph.user].to_numpy()
    return np.asarray(codes[inverse], dtype=np.int32)


def as_dataset(batches: Batches, lengths: Mapping[str, int | None], epochs: int) -> Any:
    """Keras' front door: all epochs as one tf.data pipeline, prepared in the background while the model computes."""
    import tensorflow as tf

    def generate() -> Iterator[tuple[Codes, NDArray[np.float32]]]:
        for number in range(epochs):
            for batch in batches.epoch(number):
                yield batch.columns, batch.labels

    shapes = {name: (None,) if length is None else (None, length) for name, length in lengths.items()}
    columns = {name: tf.TensorSpec(shape, tf.int32) for name, shape in shapes.items()}
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(columns, tf.TensorSpec((None,), tf.float32)))
    return dataset.prefetch(8)
