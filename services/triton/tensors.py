"""Columns as Triton takes them: numpy arrays to input tensors, by the signature of the unit."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput

from shared.domain.errors import Invalid
from shared.serving.signature import Input, Signature

Feed = Mapping[str, np.ndarray[Any, Any]]
_NAMES = {"int64": "INT64", "float32": "FP32", "string": "BYTES"}
_MEMORY = 100_000
_CACHED = 4 << 20


class _Packed(dict[str, bytes]):
    """Texts as Triton's BYTES, each packed once: a catalogue's words come again with every call."""

    def __missing__(self, text: str) -> bytes:
        if len(self) >= _MEMORY:
            self.clear()
        content = str(text).encode()
        packed = self[text] = struct.pack("<I", len(content)) + content
        return packed


_packed = _Packed()


def tensors(signature: Signature, feed: Feed) -> list[InferInput]:
    return [_tensor(one, feed) for one in signature.inputs]


def dummy(signature: Signature, rows: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    """Rows of nothing: zeros and empty texts, which any unit must be able to score."""
    shapes = {one.name: (rows,) if one.width is None else (rows, one.width) for one in signature.inputs}
    types: dict[str, Any] = {"int64": np.int64, "float32": np.float32, "string": np.str_}
    return {one.name: np.zeros(shapes[one.name], types[one.dtype]) for one in signature.inputs}


def _pack(array: np.ndarray[Any, Any]) -> bytes:
    """A catalogue's column, which nobody may write to, is the same in every call: it is known by its content (never by its identity)."""
    if array.dtype.kind == "U" and not array.flags.writeable and array.nbytes <= _CACHED:
        return _pack_again(array.tobytes(), array.dtype.str)
    return _join(array)


@lru_cache(maxsize=16)
def _pack_again(content: bytes, dtype: str) -> bytes:
    return _join(np.frombuffer(content, dtype))


def _join(array: np.ndarray[Any, Any]) -> bytes:
    return b"".join([_packed[text] for text in array.ravel().tolist()])


def _tensor(one: Input, feed: Feed) -> InferInput:
    if one.name not in feed:
        raise Invalid(f"score: input '{one.name}' is missing; the unit takes it")
    array = feed[one.name]
    if array.ndim != (1 if one.width is None else 2) or (one.width is not None and array.shape[1] != one.width):
        wanted = "(rows,)" if one.width is None else f"(rows, {one.width})"
        raise Invalid(f"score: input '{one.name}' has the shape {array.shape}, expected {wanted}")
    tensor = InferInput(one.name, list(array.shape), _NAMES[one.dtype])
    if one.dtype == "string":
        tensor._raw_content = _pack(array)  # the same format as the client's own packing, which takes milliseconds on a catalogue
    else:
        tensor.set_data_from_numpy(np.ascontiguousarray(array, np.int64 if one.dtype == "int64" else np.float32))
    return tensor
