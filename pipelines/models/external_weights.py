"""Large arrays of a graph in the making, which aren't copied into it: each leaves a mark in its place, and is written once.

ONNX keeps weights in its protobuf, which ends at 2 GB, and each step with it (lowering, merging, checking, writing) copies them. So whoever
lowers a model gives large arrays here; `pipelines.export.unit` decides whether they go into `model.onnx` or into a file beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1 << 20
"""Bytes from which on an array is held beside its graph."""
_CHUNK = 1 << 26


@dataclass(frozen=True, eq=False)
class ExternalArray:
    """`blank`: the row that is all zeros in the graph, whatever the array has there."""

    kind: int
    """ONNX' number of its type."""
    dims: tuple[int, ...]
    array: NDArray[Any]
    """Of these dimensions, or the bytes of that."""
    blank: int | None = None

    @property
    def size(self) -> int:
        return int(self.array.nbytes)

    def chunks(self) -> Iterator[NDArray[Any]]:
        """In their order, in bounded pieces."""
        flat = self.array if self.array.ndim > 1 else self.array.reshape(-1, 1)
        rows = max(1, _CHUNK // max(1, flat.nbytes // max(1, len(flat))))
        for start in range(0, len(flat), rows):
            part = flat[start : start + rows]
            if self.blank is not None and start <= self.blank < start + rows:
                part = part.copy()
                part[self.blank - start] = 0
            yield np.ascontiguousarray(part)


class ExternalWeights:
    """Arrays of `smallest` bytes and more."""

    def __init__(self, smallest: int = SMALLEST) -> None:
        self.smallest = smallest
        self._arrays: dict[str, ExternalArray] = {}

    @property
    def size(self) -> int:
        return sum(array.size for array in self._arrays.values())

    def tensor(self, array: NDArray[Any], name: str, blank: int | None = None) -> Any:
        """The array as an initializer, or the mark of it."""
        from onnx import helper, numpy_helper

        external = ExternalArray(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array, blank)
        if external.size >= self.smallest:
            return self._mark(external, name)
        flat = np.concatenate([array.reshape(-1)[:0], *(chunk.reshape(-1) for chunk in external.chunks())])
        return numpy_helper.from_array(flat.reshape(array.shape), name)

    def take(self, model: Any) -> None:
        """Holds what a model's graph has in itself: of models that were lowered without a thought of this."""
        for initializer in model.graph.initializer:
            if initializer.doc_string in self._arrays or not initializer.HasField("raw_data"):
                continue
            raw = initializer.raw_data
            if len(raw) >= self.smallest:
                initializer.CopyFrom(
                    self._mark(
                        ExternalArray(initializer.data_type, tuple(initializer.dims), np.frombuffer(raw, np.uint8)), initializer.name
                    )
                )

    def of(self, tensor: Any) -> ExternalArray | None:
        return self._arrays.get(tensor.doc_string)

    def _mark(self, external: ExternalArray, name: str) -> Any:
        """A tensor of nothing, for nothing else passes the checks on the way; its note says which one it stands for."""
        from onnx import TensorProto

        note = f"beside/{len(self._arrays)}"
        self._arrays[note] = external
        return TensorProto(name=name, data_type=external.kind, dims=[0], raw_data=b"", doc_string=note)


@runtime_checkable
class LowersExternalWeights(Protocol):
    """A model whose arrays may outgrow a graph."""

    def lower_beside(self, beside: ExternalWeights) -> Any:
        """As `lower` does, with large arrays given to `beside`."""
