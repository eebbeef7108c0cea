"""A batch's columns as tensors, without a copy where the memory is the batch's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipelines.loaders.columns import Column, ListColumn
from shared.domain.errors import BadData

Tensor = Any
_WIDER: dict[str, str] = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""PyTorch computes with no unsigned integers except bytes."""


@dataclass(frozen=True)
class TensorLists:
    """Lists: row n's values are values[offsets[n]:offsets[n + 1]]."""

    values: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1


def tensors(columns: Mapping[str, Column]) -> dict[str, Any]:
    return {
        name: TensorLists(_tensor(name, column.values), _tensor(name, column.offsets))
        if isinstance(column, ListColumn)
        else _tensor(name, column)
        for name, column in columns.items()
    }


def _tensor(name: str, array: NDArray[Any]) -> Tensor:
    wider = _WIDER.get(array.dtype.name)
    if wider is not None:
        if array.dtype == np.uint64 and len(array) and array.max() > np.iinfo(np.int64).max:
            raise BadData(f"column '{name}' has {array.max()}, which does not fit int64, PyTorch's largest integer type")
        return torch.from_numpy(array.astype(wider))
    return torch.from_numpy(array if array.flags.writeable else array.copy())
