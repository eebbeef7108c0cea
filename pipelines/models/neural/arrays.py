"""Array functions of a step: Keras', and on torch torch's own for those that each step calls.

Keras checks and converts the arguments of each call, which takes longer than the work on small tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np


def load_arrays() -> Any:
    """Returns the functions for the backend of this process, with the names and arguments of `keras.ops`."""
    from keras import config, ops

    return _torch_functions() if config.backend() == "torch" else ops


@cache
def _torch_functions() -> Any:
    import torch
    from keras import ops

    class TorchFunctions:
        """Functions of torch with the names and arguments of Keras'. They convert no types: all arguments of a call must have the same."""

        relu, softplus = staticmethod(torch.relu), staticmethod(torch.nn.functional.softplus)

        def __getattr__(self, name: str) -> Any:
            return getattr(ops, name)

        def cast(self, rows: Any, dtype: Any) -> Any:
            return rows.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)

        def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Any:
            return torch.cat(tuple(parts), axis)

        def stack(self, parts: Sequence[Any], axis: int = 0) -> Any:
            return torch.stack(tuple(parts), axis)

        def unstack(self, rows: Any, number: int, axis: int = 0) -> Any:
            return rows.unbind(axis)

        def reshape(self, rows: Any, shape: Sequence[int]) -> Any:
            return rows.reshape(shape)

        def expand_dims(self, rows: Any, axis: int) -> Any:
            return rows.unsqueeze(axis)

        def transpose(self, rows: Any, axes: Sequence[int] | None = None) -> Any:
            return rows.t() if axes is None else rows.permute(axes)

        def matmul(self, left: Any, right: Any) -> Any:
            return torch.matmul(left, right)

        def take(self, rows: Any, places: Any, axis: int) -> Any:
            return rows.index_select(axis, torch.from_numpy(places).to(rows.device) if isinstance(places, np.ndarray) else places)

        def sum(self, rows: Any, axis: int | None = None, keepdims: bool = False) -> Any:
            return rows.sum() if axis is None else rows.sum(axis, keepdim=keepdims)

        def mean(self, rows: Any, axis: int | None = None, keepdims: bool = False) -> Any:
            return rows.mean() if axis is None else rows.mean(axis, keepdim=keepdims)

    return TorchFunctions()
