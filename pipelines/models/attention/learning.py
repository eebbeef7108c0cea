"""A training step of a transformer: each target item is chosen among the catalogue, or among a sample of the catalogue.

The items' vectors are read, differentiated and written as rows, as in the neural families; with a sample, a step's cost follows from its
sequences and the sample, not from the catalogue. Each sampled item represents the items that were not drawn (its logit is raised by the log
of their ratio), and the target always counts as itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.attention import plain
from pipelines.models.attention.encode import NEVER, SMALLEST, AttentionOperations, encode, only_before
from pipelines.models.attention.shape import ITEMS, MARKS, PLACES, Shape, Weights
from pipelines.models.neural.frameworks.protocol import Framework, MutableState
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
        self, framework: Framework, shape: Shape, weights: Weights, how: StepOptions, dropout: float, sampled: bool, score: Score
    ) -> None:
        import keras

        self.name, self.shape = framework.name, shape
        self._on, self._dropout, self._sampled, self._score = framework, dropout, sampled, score
        self._table = framework.table(weights[ITEMS])
        self._optimizer = rows_of(how.optimizer, how.learning_rate)
        self._slots = {name: framework.table(rows) for name, rows in self._optimizer.begin(*weights[ITEMS].shape).items()}
        self._dense = {
            path: keras.Variable(array, dtype="float32", name=path.replace("/", "_")) for path, array in weights.items() if path != ITEMS
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
        padded = np.zeros((len(codes), self.shape.places), np.int32)
        padded[:, : codes.shape[1]] = codes
        at = (np.arange(len(codes)) * self.shape.places + last).astype(np.int32)
        rows = np.arange(self.shape.items, dtype=np.int32)
        inputs = rows, np.ascontiguousarray(padded.T), _padding(padded), at
        with self._on.full_precision():
            vectors = self._on.array(self._on.compiled(self._encoded, inputs, self._mutable_state)(*inputs))
        weights = self.weights()
        return compare(vectors, lambda bits: plain.states(self.shape, weights, sequences, bits), self._on.gpu)

    def weights(self) -> Weights:
        """Returns copies of the weights by path."""
        return {ITEMS: self._on.array(self._table)} | {path: array_of(variable) for path, variable in self._dense.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        state: dict[str, NDArray[Any]] = {f"weights/{path}": array for path, array in self.weights().items()}
        state |= {f"slots/{name}": self._on.array(slot) for name, slot in self._slots.items()}
        return state | {f"optimizer/{at}": array_of(variable) for at, variable in enumerate(self._others())}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._plain = None
        self._on.fill(self._table, state[f"weights/{ITEMS}"])
        for name, slot in self._slots.items():
            self._on.fill(slot, state[f"slots/{name}"])
        for path, variable in self._dense.items():
            variable.assign(state[f"weights/{path}"])
        for at, variable in enumerate(self._others()):
            variable.assign(state[f"optimizer/{at}"])

    @property
    def _mutable_state(self) -> MutableState:
        return MutableState([self._table, *self._slots.values()], [*self._dense.values(), *self._others()])

    def _others(self) -> list[Any]:
        return [*self._dense_optimizer.variables, self._chance.state]

    def _inputs(self, columns: Codes) -> tuple[Any, ...]:
        """Returns the item rows that the step reads, codes and targets as places among these rows, and the shifts of the logits."""
        codes, wanted, drawn = columns["codes"], columns["wanted"], columns.get("drawn")
        padding = _padding(codes)
        if drawn is None:
            rows = np.arange(self.shape.items, dtype=np.int32)
            moved = np.where(rows < FIRST, np.float32(NEVER), np.float32(0))
        else:
            items = codes[codes < self.shape.items]
            rows = np.unique(np.concatenate([[NULL], items, wanted, drawn])).astype(np.int32)
            moved = np.full(len(rows), NEVER, np.float32)
            moved[np.searchsorted(rows, drawn)] = math.log((self.shape.items - FIRST) / len(drawn))
            marks = np.minimum(codes - self.shape.items, 2) + len(rows)
            codes = np.where(codes < self.shape.items, np.searchsorted(rows, codes), marks).astype(np.int32)
            wanted = np.searchsorted(rows, wanted).astype(np.int32)
        return rows, np.ascontiguousarray(codes.T), padding, columns["at"], wanted, moved

    def _step(self, rows: Any, codes: Any, padding: Any, at: Any, wanted: Any, moved: Any) -> Any:
        read = self._on.gather(self._table, rows)
        loss, _, (gradient,), by_weight = self._differentiated([read], codes, padding, at, wanted, moved)
        self._dense_optimizer.apply(by_weight, list(self._dense.values()))
        slot_rows = {name: self._on.gather(slot, rows) for name, slot in self._slots.items()}
        values, after = self._optimizer.step(read, gradient, slot_rows)
        self._on.scatter(self._table, rows, values)
        for name, slot in self._slots.items():
            self._on.scatter(slot, rows, after[name])
        return loss

    def _forward(self, blocks: Sequence[Any], codes: Any, padding: Any, at: Any, wanted: Any, moved: Any) -> tuple[Any, dict[str, Any]]:
        from keras import ops

        read = blocks[0] * 1.0  # so that the gradient is a dense tensor, not one of rows
        vectors = self._outputs(read, codes, padding, at, self._dropout)
        logits = ops.matmul(vectors, ops.transpose(read[:, :-1])) + read[:, -1] + moved
        if not self._sampled:
            return ops.mean(ops.sparse_categorical_crossentropy(wanted, logits, from_logits=True)), {}
        wanted_rows = self._on.gather(read, wanted)
        own = ops.sum(vectors * wanted_rows[:, :-1], axis=1) + wanted_rows[:, -1]
        is_wanted = ops.equal(ops.expand_dims(wanted, 1), ops.expand_dims(ops.arange(ops.shape(read)[0], dtype="int32"), 0))
        others = ops.where(is_wanted, NEVER, logits)
        return ops.mean(ops.softplus(ops.logsumexp(others, axis=1) - own)), {}

    def _encoded(self, rows: Any, codes: Any, padding: Any, at: Any) -> Any:
        return self._outputs(self._on.gather(self._table, rows), codes, padding, at, 0.0)

    def _outputs(self, read: Any, codes: Any, padding: Any, at: Any, dropout: float) -> Any:
        """Returns the outputs at the places `at` of all sequences, one after the other."""
        from keras import ops

        table = ops.concatenate([read[:, :-1], self._dense[MARKS]], axis=0)
        vectors = ops.transpose(self._on.gather(table, codes), (1, 0, 2)) + self._dense[PLACES]
        later = self.shape.objective == "next"
        hidden = ops.convert_to_tensor(only_before(self.shape.places)) if later else padding[:, None, None, :]
        vectors = ops.reshape(vectors, (-1, self.shape.width))
        encoded = encode(KerasAttention(self._dense, self._chance, dropout), self.shape, vectors, hidden, self.shape.places)
        return self._on.gather(encoded, at)


def _padding(codes: NDArray[np.int32]) -> NDArray[np.float32]:
    """Returns the shift of the attention logits for padding."""
    return np.where(codes == NULL, np.float32(NEVER), np.float32(0))
