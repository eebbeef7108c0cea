"""A training step: looks rows up, differentiates with respect to them, and updates these rows and the network's weights.

Of a large table a step reads and writes only the rows that its batch uses (`lookup`), so its cost follows from the batch. A small table is
updated densely: in one pass, with marks that exclude all other rows. Both updates have the same results, up to the order of sums.
Tables change in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.neural import plain
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.arrays import load_arrays
from pipelines.models.neural.frameworks.protocol import Framework, Jit, MutableState
from pipelines.models.neural.fused import FusedTable, fuse
from pipelines.models.neural.lookup import FusedTableReader, steady
from pipelines.models.neural.losses import Logistic, Loss
from pipelines.models.neural.on_torch import move
from pipelines.models.neural.operations import KerasOperations, ServedOperations, tiles_of
from pipelines.models.neural.optimizers import Decayed, Name, dense_of, rows_of
from pipelines.models.neural.parted import ShardedOperations
from pipelines.models.neural.precision import EQUAL, PrecisionCheck, compare
from pipelines.models.neural.scaling import LossScaling
from pipelines.models.neural.weights import Weights
from pipelines.training.group import Group, RankRows

LOGISTIC = Logistic()


@dataclass(frozen=True)
class StepOptions:
    optimizer: Name = "adam"
    learning_rate: float = 0.003
    seed: int = 1
    half: bool = False
    """Whether the network computes in half precision. Weights and sums over a batch stay float32."""
    float16: bool = False
    """Whether half precision is float16 with a scaled loss; else it is bfloat16, whose exponent is as wide as float32's and needs no scale.
    """
    scale: float | None = None
    """Fixed scale of a float16 loss; None for a dynamic scale."""
    jit: Jit = False
    """Whether the network with its gradient is compiled, and on the device the update of whole tables."""
    penalty: float = 0.0
    """Weight in the loss of the squares of each row's looked-up vectors."""
    decay: float = 0.0
    """L2 of whole tables in the loss of each step, which rows get when they are read."""
    scheduled: bool = False
    """Whether the learning rate can change; else it is a constant of compiled steps."""
    fused: bool = True
    dense_rows: int = 16_384
    """A table is updated densely if it has at most this many rows for each code that a batch's row has of it."""

    @property
    def dtype(self) -> str | None:
        return ("float16" if self.float16 else "bfloat16") if self.half else None


class NeuralStep:
    """Implements TrainingStep."""

    _all_ranks_score = False
    """Whether all ranks take part in scoring, not rank 0 alone."""

    def __init__(
        self,
        framework: Framework,
        architecture: Architecture,
        weights: Weights,
        how: StepOptions = StepOptions(),
        loss: Loss = LOGISTIC,
        group: Group | None = None,
    ) -> None:
        """`group` is a group whose ranks have met; all ranks begin with rank 0's state."""
        import keras

        self.name, self.architecture, self.how = framework.name, architecture, how
        self._on, self._loss, self._group = framework, loss, group
        self._share = RankRows(0, 1, 1)
        self._dense_optimizer = dense_of(how.optimizer, how.learning_rate)
        rate = self._dense_optimizer.learning_rate if how.scheduled else how.learning_rate
        self._optimizer = rows_of(how.optimizer, rate)
        if how.decay:
            self._optimizer = Decayed(self._optimizer, how.decay, self._dense_optimizer.iterations, rate)
        self._begin_tables(weights)
        network = architecture.network
        self._dense = {path: _variable(weights[path], path) for path in network.weights(architecture.features)}
        self._moving = {path: _variable(weights[path], path, trainable=False) for path in architecture.moving}
        self._chance = keras.random.SeedGenerator(how.seed % 2**31)
        self.scale = LossScaling(how.scale) if how.dtype == "float16" else None
        self._dense_optimizer.build(list(self._dense.values()))
        self._differentiated = framework.differentiated(self._forward, list(self._dense.values()), how.jit)
        self._update_table = framework.table_update(self._optimizer, how.jit)
        self._tiles = {} if how.jit else tiles_of(network, architecture.features)
        self._run: Callable[..., Any] | None = None
        self._own: Callable[..., Any] | None = None
        self._last: Codes = {}
        self._plain: Weights | None = None
        if group is not None:
            group.broadcast(self._all())

    def _begin_tables(self, weights: Weights) -> None:
        self._fused = fuse(self.architecture.tables, self.how.dense_rows, apart=not self.how.fused)
        self._readers = [FusedTableReader(fused) for fused in self._fused]
        self._tables = [self._on.table(fused.joined(weights)) for fused in self._fused]
        self._slots = [self._begun(fused) for fused in self._fused]

    def __call__(self, batch: TrainingBatch) -> Any:
        self._plain, self._last = None, batch.columns
        if self._group is not None:
            self._share = self._group.share(len(batch))
        rows = None if self._group is None else self._share.rows
        arguments = (*self._inputs(batch.columns, rows), self._loss.targets(batch if rows is None else batch.part(rows)))
        if self._run is None:
            self._run = self._on.compiled(self._step, arguments, self._mutable_state)
        return self._run(*arguments)

    def score(self, columns: Codes) -> NDArray[np.float32]:
        return plain.score(self.architecture, self._arrays(), columns)

    def logits(self, columns: Codes) -> NDArray[np.float32]:
        return plain.outputs(self.architecture, self._arrays(), columns)[:, 0]

    def _arrays(self) -> Weights:
        """Returns all present weights."""
        if self._plain is None:
            self._plain = self.weights()
        return self._plain

    def compare(self, most: int = 4_096) -> PrecisionCheck:
        """Compares the framework's logits of the last batch with those of the arrays that it trained."""
        follows = self._group is not None and not self._group.leads
        if not self._last or (follows and not self._all_ranks_score):
            return EQUAL
        columns = self._last_columns(most)
        with self._on.full_precision():
            own = self.own_logits(columns)
        weights = self._arrays()
        if follows:
            return EQUAL
        return compare(own, lambda bits: plain.outputs(self.architecture, weights, columns, bits)[:, 0], self._on.gpu)

    def _last_columns(self, most: int) -> Codes:
        return {name: column[:most] for name, column in self._last.items()}

    def own_logits(self, columns: Codes) -> NDArray[np.float32]:
        """Returns the framework's logits of the served network."""
        ops = load_arrays()
        readings, numbers = self._inputs(columns, dense=True)
        if self._own is None:
            self._own = self._on.compiled(self._logits, (readings, numbers), self._mutable_state)
        logits = self._own(readings, numbers)
        return np.asarray(ops.convert_to_numpy(logits))

    def scale_rate(self, factor: float) -> None:
        """Implements Scheduled."""
        if not self.how.scheduled:
            raise ValueError("the step's learning rate is constant")
        rate = self._dense_optimizer.learning_rate
        rate.assign(rate * factor)

    def weights(self) -> Weights:
        """Returns copies of the weights by path."""
        weights: Weights = {}
        for fused, table in zip(self._fused, self._tables, strict=True):
            weights |= fused.parted(self._on.array(table))
        return weights | {path: array_of(variable) for path, variable in (self._dense | self._moving).items()}

    def state(self) -> dict[str, NDArray[Any]]:
        if self._group is not None and not self._group.leads:
            return {}
        state: dict[str, NDArray[Any]] = {f"weights/{path}": array for path, array in self.weights().items()}
        for fused, slots in zip(self._fused, self._slots, strict=True):
            for name, slot in slots.items():
                state |= {f"{name}/{path}": array for path, array in fused.parted(self._on.array(slot)).items()}
        return state | self._optimizer_state()

    def _optimizer_state(self) -> dict[str, NDArray[Any]]:
        """Returns the optimizer state of the network."""
        return {f"optimizer/{at}": array_of(variable) for at, variable in enumerate(self._others())}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._plain = None
        if self._group is None or self._group.leads:
            self._restore(state)
        if self._group is not None:
            self._group.broadcast(self._all())

    def check_same(self) -> None:
        """Raises RuntimeError if the ranks' states differ."""
        if self._group is not None:
            self._group.check_same(self._all())

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for fused, table, slots in zip(self._fused, self._tables, self._slots, strict=True):
            for name, tensor in {"weights": table, **slots}.items():
                arrays = {path.removeprefix(f"{name}/"): array for path, array in state.items() if path.startswith(f"{name}/")}
                self._on.fill(tensor, fused.joined(arrays))
        for path, variable in (self._dense | self._moving).items():
            variable.assign(state[f"weights/{path}"])
        for at, variable in enumerate(self._others()):
            variable.assign(state[f"optimizer/{at}"])

    @property
    def _mutable_state(self) -> MutableState:
        tables = [*self._tables, *(slot for slots in self._slots for slot in slots.values())]
        return MutableState(tables, [*self._dense.values(), *self._moving.values(), *self._others()])

    def _all(self) -> list[Any]:
        """Returns every tensor that a step changes."""
        return [*self._mutable_state.tables, *(variable.value for variable in self._mutable_state.variables)]

    def _others(self) -> list[Any]:
        return [*self._dense_optimizer.variables, self._chance.state, *(self.scale.variables if self.scale is not None else ())]

    def _begun(self, fused: FusedTable) -> dict[str, Any]:
        return {name: self._on.table(rows) for name, rows in self._optimizer.begin(fused.rows, fused.width).items()}

    def _inputs(self, columns: Codes, rows: slice | None = None, dense: bool = False) -> tuple[Any, Any]:
        """Returns only arrays, in tuples; for some rows, with places among the rows that the whole batch reads. With `dense` all tables are
        read whole."""
        readings = []
        for reader in self._readers:
            reading = reader(columns, dense) if rows is None else reader(columns, dense).part(rows)
            if self._on.steady:
                reading = steady(reading)
            lists = tuple((column.places, column.segments, column.offsets, column.shares) for column in reading.lists)
            readings.append((reading.rows, reading.places, lists))
        return tuple(readings), {name: columns[name][rows or slice(None)] for name, _ in self.architecture.numbers}

    def _step(self, readings: Any, numbers: Any, targets: Any) -> Any:
        read = [self._read(at, rows) for at, (rows, _, _) in enumerate(readings)]
        blocks, shares = self._looked_up(read, readings)
        loss, moved, by_block, by_weight = self._differentiated(blocks, shares, numbers, targets)
        gradients = iter(by_block)
        by_row = [self._summed(at, rows, places, lists, gradients) for at, (rows, places, lists) in enumerate(readings)]
        if self._group is not None:
            loss, *reduced = self._group.joined([loss, *by_weight, *by_row])
            by_weight, by_row = reduced[: len(by_weight)], reduced[len(by_weight) :]
        sound = None
        if self.scale is not None:
            loss, by_row, by_weight, sound = self._unscaled(self.scale, loss, by_row, by_weight)
            self.scale.follow(sound)
        self._update_dense(by_weight, sound)
        for path, value in moved.items():
            self._moving[path].assign(_new_if_sound(sound, value, self._moving[path].value))
        for at, (rows, _, _) in enumerate(readings):
            self._update(at, rows, read[at], by_row[at], sound)
        return loss

    def _unscaled(self, scale: LossScaling, loss: Any, by_row: Any, by_weight: Any) -> tuple[Any, Any, Any, Any]:
        """Returns loss and gradients without the scale, and whether all gradients are finite."""
        (loss,) = scale.unscaled([loss])
        by_row, by_weight = scale.unscaled(by_row), scale.unscaled(by_weight)
        return loss, by_row, by_weight, scale.sound([*by_row, *by_weight])

    def gathered(self, rows: Any) -> Any:
        """Implements BatchRows."""
        assert self._group is not None
        return self._group.gathered(rows, self._share)

    def _learning(self) -> KerasOperations:
        arguments = (self._dense, self._moving, self._chance, self.how.dtype, self._tiles)
        return KerasOperations(*arguments) if self._group is None else ShardedOperations(*arguments, group=self._group, share=self._share)

    def _read(self, at: int, rows: Any) -> Any:
        """Returns the rows that the step reads: those of the reading, or the table itself."""
        return self._tables[at] if is_dense(rows) else self._on.gather(self._tables[at], rows)

    def _looked_up(self, read: Any, readings: Any) -> tuple[list[Any], list[Any]]:
        """Returns blocks (per fused table the single columns' vectors, [columns, rows, width], and each list column's sums) and the
        factors."""
        blocks, shares = [], []
        for fused, values, (_, places, lists) in zip(self._fused, read, readings, strict=True):
            if fused.single:
                blocks.append(self._on.gather(values, places))
            for list_places, segments, offsets, share in lists:
                blocks.append(self._on.pool(values, list_places, segments, offsets))
                shares.append(share)
        return blocks, shares

    def _features(self, blocks: Any, shares: Any, numbers: Any) -> dict[str, Any]:
        ops = load_arrays()
        features, block, share = dict[str, Any](), iter(blocks), iter(shares)
        for fused in self._fused:
            if fused.single:
                many = next(block)
                several = ops.unstack(many, len(fused.single), axis=0) if len(fused.single) > 1 else [ops.squeeze(many, 0)]
                features |= {table.column: vectors for table, vectors in zip(fused.single, several, strict=True)}
            for table in fused.lists:
                features[table.column] = next(block) * next(share)
        for name, width in self.architecture.numbers:
            features[name] = ops.expand_dims(numbers[name], 1) if width is None else numbers[name]
        return features

    def _forward(self, blocks: Any, shares: Any, numbers: Any, targets: Any) -> tuple[Any, dict[str, Any]]:
        ops = load_arrays()
        features = self._features(blocks, shares, numbers)
        on = self._learning()
        inputs = {name: ops.cast(feature, self.how.dtype) for name, feature in features.items()} if self.how.half else features
        network = self.architecture.network
        outputs = network.outputs(on, inputs)
        among = None if self._group is None else self
        loss = self._loss([ops.cast(outputs[name], "float32") for name in self._loss.of or (network.last,)], targets, among)
        if self.how.penalty:
            vectors = [features[table.column] for table in self.architecture.tables]
            loss = loss + self.how.penalty * sum(ops.mean(ops.sum(ops.square(rows), axis=1)) for rows in vectors)
        if self._group is not None:
            loss = loss * self._share.weight
        return loss if self.scale is None else self.scale.scaled(loss), on.moved

    def _logits(self, readings: Any, numbers: Any) -> Any:
        read = [self._read(at, rows) for at, (rows, _, _) in enumerate(readings)]
        features = self._features(*self._looked_up(read, readings), numbers)
        return self.architecture.network.apply(ServedOperations(self._dense, self._moving, None, None), features)[:, 0]

    def _summed(self, at: int, rows: Any, places: Any, lists: Any, gradients: Any) -> Any:
        """Returns the gradient of the rows that were read."""
        ops = load_arrays()
        gradient, where = self._by_place(at, places, lists, gradients)
        return self._on.summed(gradient, where, self._fused[at].rows if is_dense(rows) else ops.shape(rows)[0])

    def _by_place(self, at: int, places: Any, lists: Any, gradients: Any) -> tuple[Any, Any]:
        """Returns the gradients of all lookups, and their places among the rows that were read."""
        ops = load_arrays()
        fused, parts, positions = self._fused[at], [], []
        if fused.single:
            parts.append(ops.reshape(next(gradients), (-1, fused.width)))
            positions.append(ops.reshape(places, (-1,)))
        for list_places, segments, _, _ in lists:
            parts.append(self._on.gather(next(gradients), segments))
            positions.append(list_places)
        gradient, where = (ops.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in (parts, positions))
        return gradient, where

    def _update_dense(self, gradients: Any, sound: Any) -> None:
        ops = load_arrays()
        if self.name == "torch":
            rate = float(self._dense_optimizer.learning_rate.numpy()) if self.how.scheduled else self.how.learning_rate
            move(self.how.optimizer, self._dense_optimizer, rate, gradients, list(self._dense.values()), sound)
            return
        variables = [*self._dense.values(), *self._dense_optimizer.variables]
        before = [] if sound is None else [ops.copy(variable.value) for variable in variables]
        self._dense_optimizer.apply(gradients, list(self._dense.values()))
        for variable, previous in zip(variables, before, strict=False):
            variable.assign(_new_if_sound(sound, variable.value, previous))

    def _update(self, at: int, rows: Any, values: Any, gradient: Any, sound: Any) -> None:
        ops = load_arrays()
        slots = self._slots[at]
        if is_dense(rows):
            if sound is not None:
                rows, gradient = rows * ops.cast(sound, "float32"), ops.where(sound, gradient, ops.zeros_like(gradient))
            self._update_table(self._tables[at], gradient, slots, rows)
            return
        slot_rows = {name: self._on.gather(slot, rows) for name, slot in slots.items()}
        moved, after = self._optimizer.step(values, gradient, slot_rows)
        self._on.scatter(self._tables[at], rows, _new_if_sound(sound, moved, values))
        for name, slot in slots.items():
            self._on.scatter(slot, rows, _new_if_sound(sound, after[name], slot_rows[name]))


def is_dense(rows: Any) -> bool:
    """Whether the rows of a reading are marks of a whole table's rows."""
    return len(rows.shape) == 2


def _new_if_sound(sound: Any, new: Any, old: Any) -> Any:
    """Returns `new`, or `old` if the step is skipped; `sound` is None if steps are never skipped."""
    ops = load_arrays()
    return new if sound is None else ops.where(sound, new, old)


def _variable(array: NDArray[np.float32], path: str, trainable: bool = True) -> Any:
    import keras

    return keras.Variable(array, trainable=trainable, dtype="float32", name=path.replace("/", "_"))


def array_of(variable: Any) -> NDArray[Any]:
    ops = load_arrays()
    return np.array(ops.convert_to_numpy(variable))
