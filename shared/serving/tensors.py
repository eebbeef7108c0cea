"""Columns as the graph of a served unit takes them: the one place that makes its tensors, for Triton and for ONNX Runtime alike.

Columns have a row a row: a list is a row of its input's width, blank behind its last value. Where the signature says `offsets`, the
lists go without those blanks, one after the other, and beside them where each begins and ends. The two can't be taken for each other:
they have other names, and offsets begin with 0, never fall and end with the number of values, for they are made of lengths here.
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
    """By name, in the order of the signature's tensors. Invalid where a column is missing or isn't as wide as its input."""
    by_name: dict[str, Array] = {}
    for model_input in signature.inputs:
        parts = (
            (_column(model_input, columns),) if model_input.lists == "padded" else flat(_column(model_input, columns), model_input.dtype)
        )
        by_name |= {tensor.name: part for tensor, part in zip(model_input.tensors, parts, strict=True)}
    return {tensor.name: by_name[tensor.name] for tensor in signature.tensors}


def flat(lists: Array, dtype: DataType) -> tuple[Array, Array]:
    """Values and offsets of rows of lists. A blank that has a value behind it stays: it is a null of the list."""
    present = ~np.isnan(lists) if dtype == "float32" else lists != BLANK[dtype]
    places = np.arange(1, lists.shape[1] + 1, dtype=np.int32)
    lengths = (present.T * places[:, None]).max(axis=0)  # so, and not row by row, it takes half the time
    values = lists[places <= lengths[:, None]]
    values.flags.writeable = lists.flags.writeable  # who may rely on the lists may rely on the values
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return values, offsets


def _column(model_input: Input, columns: Columns) -> Array:
    if model_input.name not in columns:
        raise Invalid(f"score: input '{model_input.name}' is missing; the unit takes it")
    array = columns[model_input.name]
    if array.ndim != (1 if model_input.width is None else 2) or (model_input.width is not None and array.shape[1] != model_input.width):
        wanted = "(rows,)" if model_input.width is None else f"(rows, {model_input.width})"
        raise Invalid(f"score: input '{model_input.name}' has the shape {array.shape}, expected {wanted}")
    return array
