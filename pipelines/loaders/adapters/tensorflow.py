"""The door to TensorFlow: a loader's batches as a tf.data.Dataset.

What a batch costs here is one call of Python. Arrays that lie where TensorFlow wants them go in as they are, others are copied. The loader
prepares batches in threads of its own, so the dataset needs no parallelism: its order is the loader's. It shards by the loader's
shard too, so a distribution strategy leaves it alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.loaders.adapters.layout import Chosen, Ragged, Shown
from pipelines.loaders.adapters.opened import Opened, opened
from pipelines.loaders.columns import Array, Column, Lists
from pipelines.loaders.epochs import EpochReader
from pipelines.models.runtime import load_tensorflow
from shared.domain.errors import Invalid

_AHEAD = 2
_INFINITE = -1
"""tf.data.INFINITE_CARDINALITY"""
_NO_END = np.iinfo(np.int64).max
Passes = Iterator[tuple[int, int | None]]
"""Of each time that a dataset is iterated: the position of its first batch, and that behind its last one."""


def as_dataset(
    loader: EpochReader, label: str | None = None, lists: Chosen = "ragged", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
) -> Any:
    """Of (columns, label), or of columns where there is no label. `epochs` at a time: iterated again it goes on with those behind, in other
    orders of the rows. None: one iteration without an end. `start`: the first epoch, and the batch of it to begin with."""
    door = opened(loader, label, lists, Ragged())
    first, steps = door.position(start), len(loader)
    if epochs is None:
        return dataset(door, itertools.repeat((first, None)), _INFINITE)
    if epochs < 1:
        raise Invalid(f"epochs: a dataset has at least one, or None for no end; not {epochs}")
    ends = itertools.count((start[0] + epochs) * steps, epochs * steps)
    return dataset(door, itertools.pairwise(itertools.chain([first], ends)), epochs * steps if start[1] == 0 else None)


def dataset(door: Opened, passes: Passes, batches: int | None) -> Any:
    """`batches`: of every pass, where that is known."""
    tf = load_tensorflow()
    flat = list(_flat(door))
    running: dict[int, Iterator[dict[str, Column]]] = {}
    numbers = itertools.count()

    def iterations() -> Iterator[tuple[int, int]]:
        """One, open as long as whoever iterates holds it."""
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


def _flat(door: Opened) -> Iterator[Shown]:
    """The arrays that a batch consists of, in order."""
    for column in door.columns.values():
        yield replace(column, shape=(None,)) if column.ragged else column
        if column.ragged:
            yield Shown(np.dtype(np.int64))


def _arrays(columns: Iterable[Column]) -> Iterator[Array]:
    for column in columns:
        if isinstance(column, Lists):
            yield column.values
            yield column.offsets
        else:
            yield column
