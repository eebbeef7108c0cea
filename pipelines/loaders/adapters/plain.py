"""Adapters to NumPy arrays and Arrow record batches; only booleans for Arrow are copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.loaders.adapters.layout import Chosen, Offsets, RaggedLayout
from pipelines.loaders.adapters.opened import opened
from pipelines.loaders.columns import Column, ListColumn
from pipelines.loaders.epochs import EpochReader
from shared.domain.errors import Invalid


def as_numpy(
    loader: EpochReader, label: str | None = None, lists: Chosen = "offsets", epochs: int | None = 1, start: tuple[int, int] = (0, 0)
) -> Iterator[Any]:
    """Yields (columns, label), or columns if there is no label. `epochs` None has no end; `start` is the first epoch and batch."""
    door = opened(loader, label, lists, Offsets())
    for name, column in door.columns.items():
        if column.ragged:
            raise Invalid(f"lists: column '{name}': NumPy has no ragged arrays; set 'offsets', 'lengths', 'padded' or Dense(size)")
    return (door.divided(batch) for batch in door.epochs(epochs, start))


def as_arrow(loader: EpochReader, epochs: int | None = 1, start: tuple[int, int] = (0, 0)) -> Iterator[pa.RecordBatch]:
    door = opened(loader, None, "ragged", RaggedLayout())
    return (_record_batch(batch) for batch in door.epochs(epochs, start))


def _record_batch(batch: dict[str, Column]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_arrow(column) for column in batch.values()], names=list(batch))


def _arrow(column: Column) -> Any:
    if isinstance(column, ListColumn):
        return pa.LargeListArray.from_arrays(pa.array(column.offsets), pa.array(column.values))
    if column.ndim > 1:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(column).ravel()), column.shape[1])
    return pa.array(column)
