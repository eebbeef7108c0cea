"""Conversion of columns to the input tensors of a served unit's graph, the only one for Triton and ONNX Runtime.

Columns have one entry per row: a list is a row of its input's width, padded with blanks. For `offsets` in the signature, the lists are
concatenated without padding, with their offsets. For `shared`, neighbouring rows with equal lists share one list. The forms cannot be
confused: their names differ. Offsets begin with 0, never fall and end with the number of values, because they are computed from lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shared.domain.errors import Invalid
from shared.serving.signature import BLANK, DataType, Input, Signature

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]


def tensors(signature: Signature, columns: Columns) -> dict[str, Array]:
    """Returns tensors by name, in the signature's order. Raises Invalid if a column is missing or has the wrong width."""
    by_name: dict[str, Array] = {}
    for model_input in signature.inputs:
        column = _column(model_input, columns)
        parts: tuple[Array, ...] = (column,)
        if model_input.lists == "offsets":
            parts = flat(column, model_input.dtype)
        elif model_input.lists == "shared":
            parts = shared(column)
        by_name |= {tensor.name: part for tensor, part in zip(model_input.tensors, parts, strict=True)}
    return {tensor.name: by_name[tensor.name] for tensor in signature.tensors}


def flat(lists: Array, dtype: DataType) -> tuple[Array, Array]:
    """Returns values and offsets of rows of lists. A blank before a value stays: it is a null of the list."""
    present = ~np.isnan(lists) if dtype == "float32" else lists != BLANK[dtype]
    places = np.arange(1, lists.shape[1] + 1, dtype=np.int32)
    lengths = (present.T * places[:, None]).max(axis=0)  # takes half the time of a maximum per row
    values = lists[places <= lengths[:, None]]
    values.flags.writeable = lists.flags.writeable  # the values share the write protection of the lists
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return values, offsets


def shared(lists: Array) -> tuple[Array, Array]:
    """Returns the lists without repeats of a neighbour, and the number of each row's list."""
    if not lists.strides[0]:  # one list, repeated without a copy
        return lists[:1], np.zeros(len(lists), np.int64)
    begins = np.append(True, (lists[1:] != lists[:-1]).any(axis=1))[: len(lists)]
    return lists[begins], np.cumsum(begins) - 1


def _column(model_input: Input, columns: Columns) -> Array:
    if model_input.name not in columns:
        raise Invalid(f"score: input '{model_input.name}' is missing; the unit needs it")
    array = columns[model_input.name]
    if array.ndim != (1 if model_input.width is None else 2) or (model_input.width is not None and array.shape[1] != model_input.width):
        wanted = "(rows,)" if model_input.width is None else f"(rows, {model_input.width})"
        raise Invalid(f"score: input '{model_input.name}' has the shape {array.shape}, expected {wanted}")
    return array
