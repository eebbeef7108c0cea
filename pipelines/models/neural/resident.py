"""A step on torch whose batches are on the device: no data and no number passes through the host (`on_torch`).

Of a table that is updated densely no row has to be found, and every shape is fixed. Of a larger table the device finds the distinct rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.tables import Codes
from pipelines.models.neural.fused import FusedTable
from pipelines.models.neural.network import Dropout
from pipelines.models.neural.on_torch import TorchDeviceOperations, seed_device, unscale
from pipelines.models.neural.operations import KerasOperations, ServedOperations
from pipelines.models.neural.scaling import LossScaling
from pipelines.models.neural.step import NeuralStep
from pipelines.training.step import State

Tensor = Any


class ResidentStep(NeuralStep):
    """Implements TrainingStep for batches of tensors; also scores arrays, on the device."""

    _step_count = 0
    """Steps so far: they seed the dropout of the next step."""

    def __call__(self, batch: TrainingBatch) -> Any:
        import torch

        self._plain, self._last = None, batch.columns
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
            readings, numbers = self._inputs(columns, dense=True)
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
        return TorchDeviceOperations(self._dense, self._moving, None, self.how.dtype, self._tiles)

    def _inputs(self, columns: Mapping[str, Any], rows: slice | None = None, dense: bool = False) -> tuple[Any, Any]:
        readings = (self._reading(fused, columns, dense or fused.dense) for fused in self._fused)
        return tuple(readings), {name: columns[name] for name, _ in self.architecture.numbers}

    def _reading(self, fused: FusedTable, columns: Mapping[str, Tensor], dense: bool) -> Any:
        """Returns rows, or marks of all rows, places of single columns, and lists."""
        import torch

        single = [columns[table.column] + fused.start(table) for table in fused.single]
        lists = [_values(columns[table.column], fused.start(table), table.pooling) for table in fused.lists]
        where = torch.cat([*single, *(values for values, *_ in lists)])
        if dense:
            marks = torch.zeros((fused.rows, 1), device=where.device).index_fill_(0, where.long(), 1.0)
            return marks, torch.stack(single) if single else None, tuple(lists)
        rows, where = torch.unique(where, return_inverse=True)
        parts = where.split([*map(len, single), *(len(values) for values, *_ in lists)])
        places = torch.stack(parts[: len(single)]) if single else None
        return rows, places, tuple((part, *rest) for part, (_, *rest) in zip(parts[len(single) :], lists, strict=True))

    def _unscaled(self, scale: LossScaling, loss: Any, by_row: Any, by_weight: Any) -> tuple[Any, Any, Any, Any]:
        sound = unscale([*by_row, *by_weight], scale.variables[0].value)
        return scale.unscaled([loss])[0], by_row, by_weight, sound


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
