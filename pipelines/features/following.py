"""Sequences of codes that continue others: a user's items of a request behind the items of the training. In numpy and as ONNX nodes.

A row has its codes first, the oldest first, and NULL behind them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.features.onnx_builder import OnnxBuilder

Ints = NDArray[np.int32]


def followed(codes: Ints, more: Ints) -> Ints:
    """Appends `more` to `codes`, row by row, and keeps the newest; a row stays as long as it was."""
    length, width = codes.shape[1], more.shape[1]
    there, new = ((array != NULL).sum(axis=1)[:, None] for array in (codes, more))
    at = np.arange(length)[None, :] + np.maximum(there + new - length, 0)
    places = np.where(at < there, at, np.where(at < there + new, at - there + length, length + width))
    merged: Ints = np.take_along_axis(np.pad(np.concatenate([codes, more], axis=1), ((0, 0), (0, 1))), places, axis=1)
    return merged


def lower_followed(build: OnnxBuilder, codes: str, more: str, length: int, width: int) -> str:
    """Same as `followed`, for int32 codes; `length` and `width` are those of `codes` and `more`."""
    const = build.constant

    def count(tensor: str) -> str:
        there = build.cast(build.node("Not", build.node("Equal", tensor, const(np.int32(NULL)))), "INT64")
        return build.node("ReduceSum", there, const([1]), keepdims=1)

    there, new = count(codes), count(more)
    both = build.node("Add", there, new)
    late = build.node("Max", build.node("Sub", both, const(length)), const(0))
    at = build.node("Add", const(np.arange(length)[None, :]), late)
    behind = build.node("Add", build.node("Sub", at, there), const(length))
    behind = build.node("Where", build.node("Less", at, both), behind, const(length + width))
    places = build.node("Where", build.node("Less", at, there), at, behind)
    joined = build.node("Concat", codes, more, build.cast(build.node("Mul", there, const(0)), "INT32"), axis=1)
    return build.node("GatherElements", joined, places, axis=1)


def present_first(codes: Ints) -> Ints:
    """Drops unknown items: codes of items come first, in their order."""
    items = codes >= FIRST
    order = np.argsort(~items, axis=1, kind="stable")
    first: Ints = np.take_along_axis(np.where(items, codes, NULL), order, axis=1).astype(np.int32)
    return first


def lower_present_first(build: OnnxBuilder, codes: str, width: int) -> str:
    """Same as `present_first`, for int32 codes."""
    items = build.node("GreaterOrEqual", codes, build.constant(np.int32(FIRST)))
    places = build.constant(np.arange(width)[None, :])
    keys = build.node("Where", items, places, build.node("Add", places, build.constant(width)))
    build.node("TopK", keys, build.constant([width]), output=(f"{codes}/keys", f"{codes}/order"), axis=1, largest=0, sorted=1)
    return build.node("GatherElements", build.node("Where", items, codes, build.constant(np.int32(NULL))), f"{codes}/order", axis=1)
