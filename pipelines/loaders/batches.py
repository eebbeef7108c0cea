"""One batch contract: code columns and labels as numpy arrays, streamed from Parquet with bounded memory.

Row groups are read in a seeded order into a pool of a few of them; negatives are drawn for the pool's positives, the pool
is shuffled, and batches are cut from it. A pool fits the processor's cache, which makes its random reads cheap. Item
and user features are gathered from their tables by row number, for positives and negatives alike, so an interaction on
disk is a few numbers however many features an item has; a negative has its positive's moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.features.graph import Graph
from pipelines.features.prepared import FEATURE, FOLD
from pipelines.loaders.tables import Array, Catalogue, Codes, array, crossed, stranger

COLUMNS = ["user_code", "item_row", "label"]
POOL_GROUPS = 4
# This share of rows is shown as of unknown users, and another one as of unknown items: a model learns what holds on average.
UNKNOWN_SHARE = 0.02


@dataclass(frozen=True)
class Batch:
    columns: Codes
    labels: NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """A pool, or a part of one, before features are gathered: each column of the data as an array."""

    columns: dict[str, Array]

    def __len__(self) -> int:
        return len(self.columns["label"])

    def take(self, index: NDArray[np.int64] | slice) -> Rows:
        return Rows({name: column[index] for name, column in self.columns.items()})


def join(first: Rows, second: Rows) -> Rows:
    return Rows({name: np.concatenate([column, second.columns[name]]) for name, column in first.columns.items()})


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
            context = {f"{FEATURE}{one.name}": one.kind for one in self.graph.side("context")}
            wanted = [name for name in file.schema_arrow.names if name in (*COLUMNS, "user_row", *context) or name.startswith(FOLD)]
            groups = np.arange(file.num_row_groups)
            if self.shuffle:
                random.shuffle(groups)
            for start in range(0, len(groups), POOL_GROUPS):
                table = pl.from_arrow(file.read_row_groups(groups[start : start + POOL_GROUPS].tolist(), columns=wanted))
                assert isinstance(table, pl.DataFrame)
                columns: dict[str, Array] = {name: table[name].to_numpy() for name in wanted if name not in context}
                columns |= {name: array(_fixed(table[name]), context[name]) for name in wanted if name in context}
                yield Rows(columns | {"label": columns["label"].astype(np.float32)})

    def _prepared(self, pool: Rows, random: np.random.Generator) -> Rows:
        if self.negatives:
            positive = np.flatnonzero(pool.columns["label"] > 0)
            drawn = pool.take(np.repeat(positive, self.negatives)).columns
            rows = random.integers(0, self.catalogue, len(drawn["label"]), dtype=np.int32)
            pool = join(pool, Rows(drawn | {"item_row": rows, "label": np.zeros(len(rows), np.float32)}))
        return pool.take(random.permutation(len(pool))) if self.shuffle else pool

    def _batch(self, rows: Rows, random: np.random.Generator) -> Batch:
        graph, data = self.graph, rows.columns
        folds = {int(name.removeprefix(FOLD)): column for name, column in data.items() if name.startswith(FOLD)}
        columns = self.items.take(data["item_row"], folds)
        columns |= {one.name: data[f"{FEATURE}{one.name}"] for one in graph.side("context")}
        if self.users is not None:
            columns |= self.users.take(data["user_row"], folds)
        columns[graph.user] = data["user_code"]
        if self.unknown_share:
            for stranger in self._strangers:
                hidden = np.flatnonzero(random.random(len(rows)) < self.unknown_share)
                for name, value in stranger.items():
                    columns[name] = columns[name].copy()  # it may be the pool's own
                    columns[name][hidden] = value
        return Batch(crossed(graph, columns), data["label"])

    @cached_property
    def _strangers(self) -> tuple[dict[str, Array], ...]:
        """What there is of an unknown user, and of an unknown item: of every feature that is made of the key."""
        return tuple(stranger(self.graph, key) for key in (self.graph.user, self.graph.item))

    @property
    def catalogue(self) -> int:
        return len(self.items)


def _fixed(column: pl.Series) -> pl.Series:
    """Arrow has forgotten that lists are of one length."""
    return column.list.to_array(int(column.list.len().max() or 0)) if isinstance(column.dtype, pl.List) else column  # type: ignore[arg-type]


def as_dataset(batches: Batches, epochs: int) -> Any:
    """Keras' front door: all epochs as one tf.data pipeline, prepared in the background while the model computes."""
    import tensorflow as tf

    def generate() -> Iterator[tuple[Codes, NDArray[np.float32]]]:
        for number in range(epochs):
            for batch in batches.epoch(number):
                yield batch.columns, batch.labels

    columns = {
        one.name: tf.TensorSpec((None,) if one.width is None else (None, one.width), tf.int32 if one.kind == "code" else tf.float32)
        for one in batches.graph.features
    }
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(columns, tf.TensorSpec((None,), tf.float32)))
    return dataset.prefetch(8)
