"""A step on torch whose batches are on the device: no data and no number passes through the host (`on_torch`).

Of a table that is small compared with the batch, the step reads, differentiates and writes all rows, and a mask protects the rows that the
batch does not look up: so no row has to be found, and every shape is fixed. Of a larger table the device finds the distinct rows. The
updates equal those of `optimizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.neural.fused import FusedTable
from pipelines.models.neural.network import Dropout
from pipelines.models.neural.on_torch import TorchDeviceOperations, move, seed_device, tiles_of, unscale
from pipelines.models.neural.operations import KerasOperations, ServedOperations
from pipelines.models.neural.scaling import LossScaling
from pipelines.models.neural.step import NeuralStep
from pipelines.training.step import State

READ_ALL_FACTOR = 4
"""A table is read whole if it has at most this many times the rows that a batch looks up."""
Tensor = Any


class ResidentStep(NeuralStep):
    """Implements TrainingStep for batches of tensors; also scores arrays, on the device."""

    _moves: Callable[..., None] | None = None
    _step_count = 0
    """Steps so far: they seed the dropout of the next step."""

    def __call__(self, batch: TrainingBatch) -> Any:
        import torch

        self._plain, self._last, self._where = None, batch.columns, dict[int, Tensor]()
        if self._draws:
            seed_device(self.how.seed, 79, self._step_count)
        self._step_count += 1
        with torch.no_grad():
            return self._step(*self._inputs(batch.columns), batch.labels)

    def read(self, losses: Sequence[Any]) -> list[float]:
        """Implements ReadsTogether."""
        import torch

        values: list[float] = torch.stack(list(losses)).tolist()
        return values

    def score(self, columns: Codes) -> NDArray[np.float32]:
        return np.asarray(self._on.array(self.scores(self._there(columns))))

    def own_logits(self, columns: Codes) -> NDArray[np.float32]:
        return np.asarray(self._on.array(self._logits_there(self._there(columns))))

    def scores(self, columns: Mapping[str, Tensor], half: bool = False) -> Tensor:
        """Scores rows on the device and leaves the scores there; `half` uses the training's precision."""
        import torch

        logits = self._logits_there(columns, half)
        return torch.sigmoid(logits) if self.architecture.output == "sigmoid" else logits

    def _logits_there(self, columns: Mapping[str, Tensor], half: bool = False) -> Tensor:
        import torch
        from keras import ops

        dtype = self.how.dtype if half else None
        with torch.no_grad():
            readings, numbers = self._inputs(columns, all_rows=True)
            features = self._features(*self._looked_up(self._tables, readings), numbers)
            inputs = {name: ops.cast(feature, dtype) for name, feature in features.items()} if dtype else features
            return self.architecture.network.apply(ServedOperations(self._dense, self._moving, None, dtype), inputs)[:, 0].float()

    def state(self) -> dict[str, NDArray[Any]]:
        return super().state() | {"taken": np.array(self._step_count)}

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._step_count = int(state["taken"])

    def _last_columns(self, most: int) -> Codes:
        last: Mapping[str, Tensor] = self._last
        return {name: column[:most].cpu().numpy() for name, column in last.items()}

    def _there(self, columns: Mapping[str, Any]) -> dict[str, Tensor]:
        import torch

        device = next(iter(self._tables)).device
        return {name: torch.as_tensor(column).to(device) for name, column in columns.items()}

    @property
    def _draws(self) -> bool:
        return any(isinstance(node, Dropout) and node.rate for node in self.architecture.network.nodes)

    def _learning(self) -> KerasOperations:
        return TorchDeviceOperations(self._dense, self._moving, self.how.dtype, self._tiles)

    @cached_property
    def _tiles(self) -> dict[int, tuple[int, ...]]:
        """Tiles for eager mode; a compiler joins the parts by itself."""
        return {} if self.how.jit else tiles_of(self.architecture.network, self.architecture.features)

    def _inputs(self, columns: Mapping[str, Any], rows: slice | None = None, all_rows: bool = False) -> tuple[Any, Any]:
        return tuple(self._reading(fused, columns, all_rows) for fused in self._fused), {
            name: columns[name] for name, _ in self.architecture.numbers
        }

    def _reading(self, fused: FusedTable, columns: Mapping[str, Tensor], all_rows: bool) -> Any:
        """Returns rows (None for all), places of single columns, and lists."""
        import torch

        single = [columns[table.column] + fused.start(table) for table in fused.single]
        lists = [_values(columns[table.column], fused.start(table), table.pooling) for table in fused.lists]
        where = torch.cat([*single, *(values for values, *_ in lists)])
        many = sum(columns[table.column].numel() for table in fused.tables)
        if all_rows or fused.rows <= READ_ALL_FACTOR * many:
            return None, torch.stack(single) if single else None, tuple(lists)
        rows, where = torch.unique(where, return_inverse=True)
        parts = where.split([*map(len, single), *(len(values) for values, *_ in lists)])
        places = torch.stack(parts[: len(single)]) if single else None
        return rows, places, tuple((part, *rest) for part, (_, *rest) in zip(parts[len(single) :], lists, strict=True))

    def _read(self, at: int, rows: Any) -> Any:
        return self._tables[at] if rows is None else super()._read(at, rows)

    def _summed(self, at: int, rows: Any, places: Any, lists: Any, gradients: Any) -> Any:
        gradient, where = self._by_place(at, places, lists, gradients)
        if rows is not None:
            return self._on.summed(gradient, where, len(rows))
        self._where[at] = where
        return self._on.summed(gradient, where, self._fused[at].rows)

    def _unscaled(self, scale: LossScaling, loss: Any, by_row: Any, by_weight: Any) -> tuple[Any, Any, Any, Any]:
        sound = unscale([*by_row, *by_weight], scale.variables[0].value)
        return scale.unscaled([loss])[0], by_row, by_weight, sound

    def _update_dense(self, gradients: Any, sound: Any) -> None:
        move(self.how.optimizer, self._dense_optimizer, self.how.learning_rate, gradients, list(self._dense.values()), sound)

    def _update(self, at: int, rows: Any, values: Any, gradient: Any, sound: Any) -> None:
        import torch

        if rows is not None:
            super()._update(at, rows, values, gradient, sound)
            return
        read = torch.zeros((self._fused[at].rows, 1), dtype=torch.bool, device=values.device)
        read.index_fill_(0, self._where[at].long(), True)
        self._table_update()(read if sound is None else read & sound, values, gradient, self._slots[at])

    def _table_update(self) -> Callable[..., None]:
        """Returns the in-place update of a whole table; compiled, it passes over the table once."""
        import torch

        if self._moves is None:
            self._moves = torch.compile(self._move_rows, dynamic=False) if self.how.jit else self._move_rows
        return self._moves

    def _move_rows(self, read: Tensor, values: Tensor, gradient: Tensor, slots: Mapping[str, Tensor]) -> None:
        import torch

        moved, after = self._optimizer.step(values, gradient, slots)
        for name, slot in slots.items():
            slot.copy_(torch.where(read, after[name], slot))
        values.copy_(torch.where(read, moved, values))


def _values(codes: Tensor, start: int, pooling: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns a list column's values without padding, each value's row, where each row's values begin, and the sums' factors."""
    import torch

    there = codes != NULL
    lengths = there.sum(1)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    segments = torch.nonzero(there)[:, 0]
    shares = 1 / lengths.clamp(min=1).float() if pooling == "mean" else torch.ones(len(codes), device=codes.device)
    values = codes[there] + start
    return values, segments.to(values.dtype), offsets.to(values.dtype), shares[:, None]
