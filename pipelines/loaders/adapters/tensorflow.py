"""Adapter to TensorFlow: a loader's batches as a tf.data.Dataset.

A batch costs a single Python call. Arrays that are aligned as TensorFlow needs are not copied. The loader prepares batches in its own
threads, so the dataset needs no parallelism and keeps the loader's order. The loader also shards, so distribution strategies must not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.loaders.adapters.layout import BatchColumn, Chosen, RaggedLayout
from pipelines.loaders.adapters.opened import OpenDataset, opened
from pipelines.loaders.columns import Array, Column, ListColumn
from pipelines.loaders.epochs import EpochReader
from pipelines.models.runtime import load_tensorflow
from shared.domain.errors import Invalid

_AHEAD = 2
_INFINITE = -1
"""tf.data.INFINITE_CARDINALITY"""
_NO_END = np.iinfo(np.int64).max
Passes = Iterator[tuple[int, int | None]]
"""For each iteration of a dataset: the position of its first batch, and the position after its last batch."""


def as_dataset(
    loader: EpochReader, label: str | None = None, lists: Chosen = "ragged", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
) -> Any:
    """Returns a dataset of (columns, label), or of columns if there is no label. An iteration gives `epochs` epochs; the next iteration
    continues with later epochs in other orders. None gives an iteration without end. `start` is the first epoch and its first batch."""
    door = opened(loader, label, lists, RaggedLayout())
    first, steps = door.position(start), len(loader)
    if epochs is None:
        return dataset(door, itertools.repeat((first, None)), _INFINITE)
    if epochs < 1:
        raise Invalid(f"epochs: must be at least 1, or None for no end; not {epochs}")
    ends = itertools.count((start[0] + epochs) * steps, epochs * steps)
    return dataset(door, itertools.pairwise(itertools.chain([first], ends)), epochs * steps if start[1] == 0 else None)


def dataset(door: OpenDataset, passes: Passes, batches: int | None) -> Any:
    """Builds the dataset; `batches` is the number of batches per iteration, or None if it varies."""
    tf = load_tensorflow()
    flat = list(_flat(door))
    running: dict[int, Iterator[dict[str, Column]]] = {}
    numbers = itertools.count()

    def iterations() -> Iterator[tuple[int, int]]:
        """Yields the number of an iteration, and keeps its batches open until the iteration ends."""
        number, (first, last) = next(numbers), next(passes)
        with closing(door.batches(first, last)) as epoch_batches:  # type: ignore[type-var]
            running[number] = epoch_batches
            try:
                yield number, _NO_END if last is None else last - first
            finally:
                del running[number]

    def batch(number: np.int64) -> list[Array]:
        columns = next(running[int(number)])
        return list(_arrays(columns[name] for name in door.columns))

    def tensors(number: Any) -> Any:
        arrays = tf.numpy_function(batch, [number], [column.dtype for column in flat])
        for array, column in zip(arrays, flat, strict=True):
            array.set_shape(column.shape)
        parts = iter(arrays)
        columns = {
            name: tf.RaggedTensor.from_row_splits(next(parts), next(parts), validate=False) if column.ragged else next(parts)
            for name, column in door.columns.items()
        }
        if door.label is None:
            return columns
        label = columns.pop(door.label)
        return columns, label

    def all_of(number: Any, count: Any) -> Any:
        return tf.data.Dataset.range(count).map(lambda _: tensors(number))

    scalar = tf.TensorSpec((), tf.int64)
    pipeline = tf.data.Dataset.from_generator(iterations, output_signature=(scalar, scalar)).flat_map(all_of).prefetch(_AHEAD)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    pipeline = pipeline.with_options(options)
    return pipeline if batches is None else pipeline.apply(tf.data.experimental.assert_cardinality(batches))


def _flat(door: OpenDataset) -> Iterator[BatchColumn]:
    """Yields the arrays of a batch, in order."""
    for column in door.columns.values():
        yield replace(column, shape=(None,)) if column.ragged else column
        if column.ragged:
            yield BatchColumn(np.dtype(np.int64))


def _arrays(columns: Iterable[Column]) -> Iterator[Array]:
    for column in columns:
        if isinstance(column, ListColumn):
            yield column.values
            yield column.offsets
        else:
            yield column
