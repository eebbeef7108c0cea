"""A step on torch whose batches lie on the device: nothing of it goes by the host but what Keras' optimizer asks for.

Of a table that is small beside the batch every row is read, differentiated and written, and rows that the batch doesn't look up are left as
they are by a mask: no row has to be found, and every shape is known before. Of a larger one the different rows are found on the device.
Either way each row moves as `optimizers` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.inputs.batches import Batch
from pipelines.inputs.tables import Codes
from pipelines.models.neural import plain
from pipelines.models.neural.fused import Fused
from pipelines.models.neural.step import NeuralStep

WHOLE = 4
"""A table is read as a whole if it has at most so many times the rows that a batch looks up in it."""
Tensor = Any


class ResidentStep(NeuralStep):
    """Implements Step, of batches of tensors. What is looked at may be arrays, and is scored on the device, too."""

    def __call__(self, batch: Batch) -> Any:
        import torch

        self._plain, self._last, self._where = None, batch.columns, dict[int, Tensor]()
        with torch.no_grad():
            return self._step(*self._given(batch.columns), batch.labels)

    def score(self, columns: Codes) -> NDArray[np.float32]:
        import torch

        with torch.no_grad():
            readings, numbers = self._given(self._there(columns))
            return np.asarray(self._on.array(self._scored(readings, numbers)))

    def apart(self, most: int = 4_096) -> float:
        if not self._last:
            return 0.0
        last: Mapping[str, Tensor] = self._last
        columns = {name: one[:most].cpu().numpy() for name, one in last.items()}
        return float(np.abs(plain.score(self.architecture, self.weights(), columns) - self.score(columns)).max())

    def _there(self, columns: Mapping[str, Any]) -> dict[str, Tensor]:
        import torch

        device = next(iter(self._tables)).device
        return {name: torch.as_tensor(one).to(device) for name, one in columns.items()}

    def _given(self, columns: Mapping[str, Any], rows: slice | None = None) -> tuple[Any, Any]:
        return tuple(map(self._reading, self._fused, [columns] * len(self._fused))), {
            name: columns[name] for name, _ in self.architecture.numbers
        }

    def _reading(self, fused: Fused, columns: Mapping[str, Tensor]) -> Any:
        """Rows (None: all of them), places of single columns, and lists."""
        import torch

        single = [columns[one.column] + fused.start(one) for one in fused.single]
        lists = [_values(columns[one.column], fused.start(one), one.pooling) for one in fused.lists]
        where = torch.cat([*single, *(values for values, *_ in lists)])
        many = sum(columns[one.column].numel() for one in fused.tables)
        if fused.rows <= WHOLE * many:
            return None, torch.stack(single) if single else None, tuple(lists)
        rows, where = torch.unique(where, return_inverse=True)
        parts = where.split([*map(len, single), *(len(values) for values, *_ in lists)])
        places = torch.stack(parts[: len(single)]) if single else None
        return rows, places, tuple((part, *rest) for part, (_, *rest) in zip(parts[len(single) :], lists, strict=True))

    def _read(self, at: int, rows: Any) -> Any:
        return self._tables[at] if rows is None else super()._read(at, rows)

    def _summed(self, at: int, rows: Any, places: Any, lists: Any, gradients: Any) -> Any:
        whole, where = self._by_place(at, places, lists, gradients)
        if rows is not None:
            return self._on.summed(whole, where, len(rows))
        self._where[at] = where
        return self._on.summed(whole, where, self._fused[at].rows)

    def _update(self, at: int, rows: Any, values: Any, gradient: Any, sound: Any) -> None:
        import torch

        if rows is not None:
            super()._update(at, rows, values, gradient, sound)
            return
        read = torch.zeros((self._fused[at].rows, 1), dtype=torch.bool, device=values.device)
        read.index_fill_(0, self._where[at].long(), True)
        if sound is not None:
            read &= sound
        moved, after = self._optimizer.step(values, gradient, self._slots[at])
        for name, slot in self._slots[at].items():
            slot.copy_(torch.where(read, after[name], slot))
        values.copy_(torch.where(read, moved, values))


def _values(codes: Tensor, start: int, pooling: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of a column of lists: all that is no padding, whose row each is of, where each row's begin, and what its sum is multiplied by."""
    import torch

    there = codes != NULL
    lengths = there.sum(1)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    segments = torch.nonzero(there)[:, 0]
    shares = 1 / lengths.clamp(min=1).float() if pooling == "mean" else torch.ones(len(codes), device=codes.device)
    values = codes[there] + start
    return values, segments.to(values.dtype), offsets.to(values.dtype), shares[:, None]
