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
    found: dict[str, Array] = {}
    for one in signature.inputs:
        parts = (_column(one, columns),) if one.lists == "padded" else flat(_column(one, columns), one.dtype)
        found |= {tensor.name: part for tensor, part in zip(one.tensors, parts, strict=True)}
    return {tensor.name: found[tensor.name] for tensor in signature.tensors}


def flat(lists: Array, dtype: DataType) -> tuple[Array, Array]:
    """Values and offsets of rows of lists. A blank that has a value behind it stays: it is a null of the list."""
    known = ~np.isnan(lists) if dtype == "float32" else lists != BLANK[dtype]
    places = np.arange(1, lists.shape[1] + 1, dtype=np.int32)
    lengths = (known.T * places[:, None]).max(axis=0)  # so, and not row by row, it takes half the time
    values = lists[places <= lengths[:, None]]
    values.flags.writeable = lists.flags.writeable  # who may rely on the lists may rely on the values
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return values, offsets


def _column(one: Input, columns: Columns) -> Array:
    if one.name not in columns:
        raise Invalid(f"score: input '{one.name}' is missing; the unit takes it")
    array = columns[one.name]
    if array.ndim != (1 if one.width is None else 2) or (one.width is not None and array.shape[1] != one.width):
        wanted = "(rows,)" if one.width is None else f"(rows, {one.width})"
        raise Invalid(f"score: input '{one.name}' has the shape {array.shape}, expected {wanted}")
    return array
