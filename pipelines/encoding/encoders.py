"""Encoders from files: ONNX, and Keras models without custom code. An encoder describes its input and returns a vector for each row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.domain.errors import BadData, Invalid, Unsupported

Array = NDArray[Any]


@dataclass(frozen=True)
class EncoderInput:
    """Input of an encoder: `images` [N, height, width, 3] or channels first; `words` [N, tokens]; `text` [N] or [N, 1].

    A dimension of None accepts any size."""

    kind: Literal["images", "words", "text"]
    dtype: str
    shape: tuple[int | None, ...]
    """Shape without the batch dimension."""

    @property
    def channels_first(self) -> bool:
        return self.kind == "images" and self.shape[-1] != 3 and self.shape[0] == 3


class Encoder(Protocol):
    takes: EncoderInput

    def encode(self, batch: Array) -> Array:
        """Returns one row of numbers for each input row."""


def open_encoder(path: Path, named: str = "") -> Encoder:
    """`named` replaces the path in messages."""
    named = named or str(path)
    if not path.is_file():
        raise Invalid(f"{named}: encoder not found")
    if path.suffix == ".onnx":
        return _Onnx(path, named)
    if path.suffix == ".keras":
        return _Keras(path, named)
    raise Unsupported(f"{named}: expected an .onnx or .keras file")


@contextmanager
def installed(library: str, purpose: str) -> Iterator[None]:
    """Turns an ImportError of a library into `Unsupported`."""
    try:
        yield
    except ImportError:
        raise Unsupported(f"{purpose}: {library} is not installed in this environment") from None


class _Onnx:
    def __init__(self, path: Path, named: str) -> None:
        with installed("ONNX Runtime", f"{named}: an .onnx encoder"):
            import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=onnxruntime.get_available_providers())
        except Exception as error:
            raise BadData(f"{named}: cannot be loaded as ONNX: {' '.join(str(error).split())[:200]}") from None
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise Unsupported(f"{named}: an encoder must have one input; inputs: {', '.join(tensor.name for tensor in inputs)}")
        self._input = inputs[0].name
        self._output = self._session.get_outputs()[0].name
        dtype = inputs[0].type.removeprefix("tensor(").removesuffix(")").replace("float", "float32").replace("float3216", "float16")
        self.takes = _takes(
            named, dtype, [dimension if isinstance(dimension, int) and dimension > 0 else None for dimension in inputs[0].shape]
        )

    def encode(self, batch: Array) -> Array:
        output = self._session.run([self._output], {self._input: batch})[0]
        return np.asarray(output)


class _Keras:
    def __init__(self, path: Path, named: str) -> None:
        with installed("TensorFlow", f"{named}: a .keras encoder"):
            from pipelines.models.runtime import load_keras

            keras = load_keras()
        try:
            self._model = keras.saving.load_model(path, compile=False, safe_mode=True)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise BadData(f"{named}: cannot be loaded as a Keras model without custom code: {reason}") from None
        inputs = self._model.inputs
        if len(inputs) != 1:
            raise Unsupported(f"{named}: an encoder must have one input, not {len(inputs)}")
        self.takes = _takes(named, str(inputs[0].dtype), list(inputs[0].shape))

    def encode(self, batch: Array) -> Array:
        import tensorflow as tf

        return np.asarray(self._model(tf.constant(batch.tolist()) if batch.dtype == object else batch, training=False))


def _takes(named: str, dtype: str, shape: list[int | None]) -> EncoderInput:
    rest = tuple(shape[1:])
    if dtype == "string" and rest in ((), (1,)):
        return EncoderInput("text", dtype, rest)
    if dtype in ("int32", "int64") and len(rest) == 1:
        return EncoderInput("words", dtype, rest)
    if dtype in ("float32", "float16", "uint8") and len(rest) == 3 and 3 in (rest[0], rest[2]):
        return EncoderInput("images", dtype, rest)
    raise Unsupported(
        f"{named}: input is {dtype} of the shape {['rows', *rest]}; expected images (three channels), words (int64 [rows, words]) or text"
    )
