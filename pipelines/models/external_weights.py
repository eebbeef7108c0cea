"""Large arrays of an ONNX graph, kept outside the graph while it is built: each array has a placeholder in the graph.

A protobuf ends at 2 GB, and each step (lowering, merging, checking, writing) copies the weights in it. So the lowering of a model hands its
large arrays over here; `pipelines.export.unit` writes each array once, into `model.onnx` or into a file beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1 << 20
"""Arrays of at least this many bytes stay outside the graph."""
_CHUNK = 1 << 26


@dataclass(frozen=True, eq=False)
class ExternalArray:
    """An array outside its graph; the row `blank` is all zeros in the graph, whatever the array holds."""

    kind: int
    """ONNX number of the data type."""
    dims: tuple[int, ...]
    array: NDArray[Any]
    """An array with these dimensions, or its bytes."""
    blank: int | None = None

    @property
    def size(self) -> int:
        return int(self.array.nbytes)

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Yields the array's contents in order, in pieces of bounded size."""
        flat = self.array if self.array.ndim > 1 else self.array.reshape(-1, 1)
        rows = max(1, _CHUNK // max(1, flat.nbytes // max(1, len(flat))))
        for start in range(0, len(flat), rows):
            part = flat[start : start + rows]
            if self.blank is not None and start <= self.blank < start + rows:
                part = part.copy()
                part[self.blank - start] = 0
            yield np.ascontiguousarray(part)


class ExternalWeights:
    """Collects the arrays of `smallest` bytes and more."""

    def __init__(self, smallest: int = SMALLEST) -> None:
        self.smallest = smallest
        self._arrays: dict[str, ExternalArray] = {}

    @property
    def size(self) -> int:
        return sum(array.size for array in self._arrays.values())

    def tensor(self, array: NDArray[Any], name: str, blank: int | None = None) -> Any:
        """Returns the array as an initializer, or a placeholder for a large array."""
        from onnx import helper, numpy_helper

        external = ExternalArray(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array, blank)
        if external.size >= self.smallest:
            return self._mark(external, name)
        flat = np.concatenate([array.reshape(-1)[:0], *(chunk.reshape(-1) for chunk in external.chunks())])
        return numpy_helper.from_array(flat.reshape(array.shape), name)

    def take(self, model: Any) -> None:
        """Takes the large arrays out of a finished graph, for models that were lowered without external weights."""
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
        """Returns the placeholder: an empty tensor, because only an empty one passes the ONNX checks; its doc_string is the array's key."""
        from onnx import TensorProto

        note = f"beside/{len(self._arrays)}"
        self._arrays[note] = external
        return TensorProto(name=name, data_type=external.kind, dims=[0], raw_data=b"", doc_string=note)


@runtime_checkable
class LowersExternalWeights(Protocol):
    """A model that can have arrays too large for a graph; subclasses inherit `lower`."""

    def lower(self) -> Any:
        """Returns the ONNX model with all its arrays."""
        return self.lower_beside(ExternalWeights(sys.maxsize))

    def lower_beside(self, beside: ExternalWeights) -> Any:
        """Lowers as `lower` does, and hands large arrays to `beside`."""
