"""A training step of a transformer: each target item is chosen among the catalogue, or among a sample of the catalogue.

With a sample, the items' vectors are read, differentiated and written as rows, as in the neural families: a step's cost follows from its
sequences and the sample, not from the catalogue. A sampled item represents the items that were not drawn: the log of its chance to be
drawn is subtracted from its logit. The target always counts as itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.attention import plain
from pipelines.models.attention.encode import NEVER, SMALLEST, AttentionOperations, encode, only_before
from pipelines.models.attention.item_features import BASE, FeaturesOfCodes
from pipelines.models.attention.shape import FEATURES, ITEMS, MARKS, PLACES, Shape, Weights
from pipelines.models.neural.frameworks.protocol import ChoosesItems, MutableState
from pipelines.models.neural.operations import level
from pipelines.models.neural.optimizers import dense_of, rows_of
from pipelines.models.neural.precision import PrecisionCheck, compare
from pipelines.models.neural.step import StepOptions, array_of

Score = Callable[[Weights, Codes], NDArray[np.float32]]


class KerasAttention(AttentionOperations):
    """Operations in Keras."""

    def __init__(self, weights: Mapping[str, Any], chance: Any, dropout: float) -> None:
        from keras import ops

        super().__init__(ops, weights)
        self._chance, self._dropout = chance, dropout

    def softmax(self, rows: Any) -> Any:
        return self._arrays.softmax(rows, axis=-1)

    def relu(self, rows: Any) -> Any:
        return self._arrays.relu(rows)

    def normalise(self, rows: Any, path: str) -> Any:
        return level(rows, self._weights[f"{path}/gamma"], self._weights[f"{path}/beta"], SMALLEST)

    def dropout(self, rows: Any) -> Any:
        from keras import random

        return random.dropout(rows, self._dropout, seed=self._chance) if self._dropout else rows


class SequenceStep:
    """TrainingStep for sequence models. `score` computes the scores of rows with the given weights."""

    def __init__(
        self,
        framework: ChoosesItems,
        shape: Shape,
        weights: Weights,
        how: StepOptions,
        dropout: float,
        sampled: bool,
        score: Score,
        features: FeaturesOfCodes | None = None,
    ) -> None:
        """With `features`, the first weights of items are without the vectors of their features."""
        import keras

        self.name, self.shape = framework.name, shape
        self._on, self._dropout, self._sampled, self._score, self._features = framework, dropout, sampled, score, features
        self._parts = [keras.ops.convert_to_tensor(part) for part in (features.parts.rows, features.parts.factors)] if features else []
        self._tables = {ITEMS: framework.table(weights[ITEMS])} if sampled else {}
        self._optimizer = rows_of(how.optimizer, how.learning_rate)
        slots = self._optimizer.begin(*weights[ITEMS].shape) if sampled else {}
        self._slots = {name: framework.table(rows) for name, rows in slots.items()}
        self._dense = {
            path: keras.Variable(array, dtype="float32", name=path.replace("/", "_"))
            for path, array in weights.items()
            if path not in self._tables
        }
        self._chance = keras.random.SeedGenerator(how.seed % 2**31)
        self._dense_optimizer = dense_of(how.optimizer, how.learning_rate)
        self._dense_optimizer.build(list(self._dense.values()))
        self._differentiated = framework.differentiated(self._forward, list(self._dense.values()), False)
        self._run: Callable[..., Any] | None = None
        self._plain: Weights | None = None

    def __call__(self, batch: TrainingBatch) -> Any:
        self._plain = None
        inputs = self._inputs(batch.columns)
        if self._run is None:
            self._run = self._on.compiled(self._step, inputs, self._mutable_state)
        return self._run(*inputs)

    def score(self, columns: Codes) -> NDArray[np.float32]:
        if self._plain is None:
            self._plain = self.weights()
        return self._score(self._plain, columns)

    def compare(self, sequences: NDArray[np.int32]) -> PrecisionCheck:
        """Compares the vectors of sequences from the framework with those from NumPy."""
        codes, last = plain.marked(self.shape, sequences)
        padded = np.zeros((self.shape.places, len(codes)), np.int32)
        padded[: codes.shape[1]] = codes.T
        steps = np.ascontiguousarray(np.broadcast_to(np.arange(self.shape.places, dtype=np.int32)[:, None], padded.shape))
        windows = np.where(padded == NULL, np.int32(-1), np.int32(0))
        at = (np.arange(len(codes)) * self.shape.places + last).astype(np.int32)
        inputs = padded, steps, windows, at
        with self._on.full_precision():
            vectors = self._on.array(self._on.compiled(self._encoded, inputs, self._mutable_state)(*inputs))
        weights = self.weights()
        return compare(vectors, lambda bits: plain.states(self.shape, weights, sequences, bits), self._on.gpu)

    def weights(self) -> Weights:
        """Returns copies of the weights by path; the vectors of items with those of their features."""
        weights = self._trained()
        if self._features is not None:
            weights[ITEMS] += self._features.parts.vectors(weights[FEATURES])
        return weights

    def _trained(self) -> Weights:
        tables = {path: self._on.array(table) for path, table in self._tables.items()}
        return tables | {path: array_of(variable) for path, variable in self._dense.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        state: dict[str, NDArray[Any]] = {f"weights/{path}": array for path, array in self._trained().items()}
        state |= {f"slots/{name}": self._on.array(slot) for name, slot in self._slots.items()}
        return state | {f"optimizer/{at}": array_of(variable) for at, variable in enumerate(self._others())}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._plain = None
        for path, table in self._tables.items():
            self._on.fill(table, state[f"weights/{path}"])
        for name, slot in self._slots.items():
            self._on.fill(slot, state[f"slots/{name}"])
        for path, variable in self._dense.items():
            variable.assign(state[f"weights/{path}"])
        for at, variable in enumerate(self._others()):
            variable.assign(state[f"optimizer/{at}"])

    @property
    def _mutable_state(self) -> MutableState:
        return MutableState([*self._tables.values(), *self._slots.values()], [*self._dense.values(), *self._others()])

    def _others(self) -> list[Any]:
        return [*self._dense_optimizer.variables, self._chance.state]

    def _inputs(self, columns: Codes) -> tuple[Any, ...]:
        """Returns the codes with their places, and the targets. With a sample also the item rows that the step reads, with codes and
        targets as places among these rows, and the shifts of their logits."""
        codes, targets, items = columns["codes"], columns["targets"], self.shape.items
        sample: tuple[Any, ...] = ()
        if self._sampled:
            rows = np.unique(np.concatenate([[NULL], codes[codes < items], targets, columns["drawn"]])).astype(np.int32)
            shifts = np.full(len(rows), NEVER, np.float32)
            shifts[np.searchsorted(rows, columns["drawn"])] = columns["shifts"]
            codes = np.where(codes < items, np.searchsorted(rows, codes), codes - items + len(rows)).astype(np.int32)
            targets, sample = np.searchsorted(rows, targets).astype(np.int32), (rows, shifts)
        by_place = (np.ascontiguousarray(rows.T) for rows in (codes, columns["steps"], columns["windows"]))
        return *by_place, columns["at"], targets, *sample

    def _step(self, codes: Any, steps: Any, windows: Any, at: Any, targets: Any, rows: Any = None, shifts: Any = None) -> Any:
        read = [self._on.gather(table, rows) for table in self._tables.values()]
        loss, _, by_row, by_weight = self._differentiated(read, codes, steps, windows, at, targets, rows, shifts)
        self._dense_optimizer.apply(by_weight, list(self._dense.values()))
        for table, before, gradient in zip(self._tables.values(), read, by_row, strict=True):
            slot_rows = {name: self._on.gather(slot, rows) for name, slot in self._slots.items()}
            values, after = self._optimizer.step(before, gradient, slot_rows)
            self._on.scatter(table, rows, values)
            for name, slot in self._slots.items():
                self._on.scatter(slot, rows, after[name])
        return loss

    def _forward(
        self, read: Sequence[Any], codes: Any, steps: Any, windows: Any, at: Any, targets: Any, rows: Any, shifts: Any
    ) -> tuple[Any, dict[str, Any]]:
        from keras import ops

        items = read[0] if self._sampled else ops.convert_to_tensor(self._dense[ITEMS])
        items = self._with_features(items, rows, training=True)
        vectors = self._outputs(items, codes, steps, windows, at, self._dropout)
        vectors = ops.concatenate([vectors, ops.ones_like(vectors[:, :1])], axis=1)  # the last column of an item is its level
        if self._sampled:
            return self._on.choice_loss(vectors, items, targets, shifts), {}
        return self._on.choice_loss(vectors, items[FIRST:], targets - FIRST, None), {}

    def _encoded(self, codes: Any, steps: Any, windows: Any, at: Any) -> Any:
        from keras import ops

        items = ops.convert_to_tensor(self._tables[ITEMS] if self._sampled else self._dense[ITEMS])
        return self._outputs(self._with_features(items), codes, steps, windows, at, 0.0)

    def _with_features(self, items: Any, rows: Any = None, training: bool = False) -> Any:
        """Adds the vectors of the features; `rows` are the codes of the items, by default all."""
        from keras import ops, random

        if self._features is None:
            return items
        table = ops.convert_to_tensor(self._dense[FEATURES])
        parts = self._parts if rows is None else [ops.take(part, rows, axis=0) for part in self._parts]
        if training and self._features.unknown:
            without_own = random.uniform((ops.shape(items)[0], 1), seed=self._chance) < self._features.unknown
            items = ops.where(without_own, table[BASE : BASE + 1], items)
        return items + self._on.weighted_rows(table, *parts)

    def _outputs(self, items: Any, codes: Any, steps: Any, windows: Any, at: Any, dropout: float) -> Any:
        """Returns the outputs at the places `at` of all rows, one after the other. Codes, steps and windows are [places, rows]."""
        from keras import ops

        shape, count = self.shape, ops.shape(items)[0]
        vectors = self._on.gather(items, ops.minimum(codes, count - 1))[:, :, :-1]
        marks = self._on.gather(ops.convert_to_tensor(self._dense[MARKS]), ops.maximum(codes - count, 0))
        vectors = ops.where(ops.expand_dims(codes < count, 2), vectors, marks) * shape.scale
        vectors = vectors + self._on.gather(ops.convert_to_tensor(self._dense[PLACES]), steps)
        vectors = ops.reshape(ops.transpose(vectors, (1, 0, 2)), (-1, shape.width))
        by_row = ops.transpose(ops.cast(windows, "float32"))  # TensorFlow warns of transposed integers on CPUs without AVX-512
        hidden = ops.cast(ops.not_equal(by_row[:, None, :, None], by_row[:, None, None, :]), "float32") * NEVER
        if shape.objective == "next":
            hidden = hidden + ops.convert_to_tensor(only_before(shape.places))
        encoded = encode(KerasAttention(self._dense, self._chance, dropout), shape, vectors, hidden, shape.places)
        return self._on.gather(encoded, at)
