"""A step on TensorFlow: a graph per step, with tables as resource variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pipelines.models.neural.frameworks.protocol import LOGITS, TINY, Jit, MutableState, Name, Pure, TableUpdate, Tensor
from pipelines.models.neural.optimizers import Rows
from pipelines.models.runtime import load_keras

COMPILED = 1 << 16
"""Numbers of a table from which the compiler pays."""


class TensorFlow:
    """Implements Framework."""

    name: Name = "tensorflow"
    steady = False

    def __init__(self) -> None:
        load_keras()
        import tensorflow as tf

        self._tf = tf

    def table(self, rows: Any) -> Tensor:
        return self._tf.Variable(rows, trainable=False)

    def fill(self, table: Tensor, rows: Any) -> None:
        table.assign(rows)

    def gather(self, table: Tensor, places: Tensor) -> Tensor:
        return self._tf.gather(table, places)  # from a variable, reads only these rows

    def scatter(self, table: Tensor, places: Tensor, rows: Tensor) -> None:
        table.scatter_update(self._tf.IndexedSlices(rows, places))

    def table_update(self, optimizer: Rows, jit: Jit) -> TableUpdate:
        """Returns an update that is compiled for tables of some size: then it passes over the table once."""
        compiled = self._tf.function(optimizer.step, jit_compile=True, autograph=False)

        def update(table: Tensor, gradient: Tensor, slots: Mapping[str, Tensor], read: Tensor) -> None:
            step = compiled if table.shape.num_elements() >= COMPILED else optimizer.step
            moved, after = step(table.value(), gradient, {name: slot.value() for name, slot in slots.items()}, read)
            table.assign(moved)
            for name, slot in slots.items():
                slot.assign(after[name])

        return update

    def pool(self, rows: Tensor, places: Tensor, segments: Tensor, offsets: Tensor) -> Tensor:
        count = self._tf.shape(offsets)[0] - 1
        return self._tf.sparse.segment_sum(rows, places, segments, num_segments=count)

    def summed(self, rows: Tensor, places: Tensor, count: Tensor) -> Tensor:
        return self._tf.math.unsorted_segment_sum(rows, places, count)

    def choice_loss(self, vectors: Tensor, rows: Tensor, targets: Tensor, shifts: Tensor | None) -> Tensor:
        tf = self._tf

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def loss_of(vectors: Tensor, rows: Tensor) -> Any:
            loss, by_vector, by_row = self._choices(vectors, rows, targets, shifts)
            factor = 1 / tf.cast(tf.shape(vectors)[0], tf.float32)
            return loss * factor, lambda gradient: (by_vector * (gradient * factor), by_row * (gradient * factor))

        return loss_of(vectors, rows)

    def _choices(self, vectors: Tensor, rows: Tensor, targets: Tensor, shifts: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the sum of the losses, and its gradients by vectors and by rows."""
        tf = self._tf
        count, total = tf.shape(vectors)[0], tf.shape(rows)[0]
        size = tf.maximum(1, LOGITS // tf.maximum(1, total))

        def part(number: Tensor, loss: Tensor, by_row: Tensor, by_vector: Tensor) -> Any:
            some, target = (tensor[number * size : (number + 1) * size] for tensor in (vectors, targets))
            own_rows = tf.gather(rows, target)
            logits = tf.matmul(some, rows, transpose_b=True)
            if shifts is not None:
                own = tf.equal(tf.range(total)[None, :], target[:, None])
                logits = tf.where(own, logits, logits + shifts)
            chances = tf.nn.softmax(logits)
            loss -= tf.reduce_sum(tf.math.log(tf.maximum(tf.gather(chances, target, batch_dims=1), TINY)))
            by_row += tf.matmul(chances, some, transpose_a=True)
            return number + 1, loss, by_row, by_vector.write(number, tf.matmul(chances, rows) - own_rows)

        parts = (count + size - 1) // size
        gathered = tf.TensorArray(tf.float32, parts, infer_shape=False, element_shape=(None, vectors.shape[1]))
        begin = (tf.constant(0), tf.constant(0.0), tf.zeros_like(rows), gathered)
        _, loss, by_row, gathered = tf.while_loop(lambda number, *_: number < parts, part, begin, parallel_iterations=1)
        return loss, gathered.concat(), by_row - tf.math.unsorted_segment_sum(vectors, targets, total)

    def weighted_rows(self, table: Tensor, rows: Tensor, factors: Tensor) -> Tensor:
        tf = self._tf
        count, parts = tf.unstack(tf.shape(rows))
        places = tf.stack([tf.repeat(tf.range(count), parts), tf.reshape(rows, [-1])], axis=1)
        shape = tf.stack([count, tf.shape(table)[0]])
        matrix = tf.SparseTensor(tf.cast(places, tf.int64), tf.reshape(factors, [-1]), tf.cast(shape, tf.int64))
        return tf.sparse.sparse_dense_matmul(matrix, table)

    def differentiated(self, function: Pure, weights: Sequence[Any], jit: Jit) -> Callable[..., tuple[Tensor, Any, Any, Any]]:
        tf = self._tf

        def both(blocks: Any, *others: Any) -> tuple[Tensor, Any, Any, Any]:
            with tf.GradientTape() as tape:
                tape.watch(blocks)
                loss, more = function(blocks, *others)
            values = [weight.value for weight in weights]
            return loss, more, *tape.gradient(loss, (blocks, values), unconnected_gradients=tf.UnconnectedGradients.ZERO)

        return tf.function(both, jit_compile=True, autograph=False) if jit else both

    def compiled(self, function: Callable[..., Tensor], like: Sequence[Any], state: MutableState) -> Callable[..., Tensor]:
        tf = self._tf

        def spec(array: np.ndarray[Any, Any]) -> Any:
            return tf.TensorSpec((*array.shape[:-1], None) if array.dtype == np.int32 else (None, *array.shape[1:]), array.dtype)

        signature = tf.nest.map_structure(spec, list(like))
        return tf.function(function, input_signature=signature, autograph=False)  # type: ignore[no-any-return]

    def array(self, tensor: Tensor) -> Any:
        return np.array(tensor.numpy())

    def missing_compiler(self, jit: Jit = True) -> str | None:
        return None

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        options = self._tf.config.experimental
        before = options.tensor_float_32_execution_enabled()
        options.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            options.enable_tensor_float_32_execution(before)

    @property
    def gpu(self) -> bool:
        return bool(self._tf.config.list_logical_devices("GPU"))
