"""The `onnxruntime` backend of the embedded server: Triton's Python backend, running `model.onnx` with ONNX Runtime.

The wheel's tritonserver has no native ONNX Runtime backend. This file stands in for it under the same name, so config.pbtxt
and the version folders are those of a cluster. Triton copies nothing of ours into its process: numpy and onnxruntime are all
that may be imported here. One process serves one version; a request that fails is that request's error alone.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

_KEPT = 1 << 20


def _decode(raw: bytes) -> np.ndarray[Any, Any]:
    """Triton's BYTES (a length of four bytes, then the text) as the str objects that ONNX Runtime takes."""
    texts, at, end = [], 0, len(raw)
    while at < end:
        start = at + 4
        at = start + int.from_bytes(raw[at:start], "little")
        texts.append(raw[start:at].decode())
    return np.array(texts, dtype=np.object_)


_decode_again = lru_cache(maxsize=16)(_decode)


def _texts(encoded: Any) -> np.ndarray[Any, Any]:
    """Catalogue columns come with every call: what was decoded before is not decoded again."""
    raw = bytes(encoded)
    return _decode_again(raw) if len(raw) <= _KEPT else _decode(raw)


# Triton calls this for each text input of each request, before `execute`; its own loop costs milliseconds on a catalogue.
pb_utils.deserialize_bytes_tensor = _texts


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = [one.name for one in self._session.get_inputs()]
        given = {one.name for one in self._session.get_outputs()}
        self._outputs = [one["name"] for one in json.loads(args["model_config"])["output"]]
        if missing := [name for name in self._outputs if name not in given]:
            raise pb_utils.TritonModelException(f"the graph has no output '{missing[0]}'")

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            scores = self._session.run(self._outputs, {name: given[name] for name in self._inputs})
            return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in zip(self._outputs, scores, strict=True)])
        except KeyError as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"input {error} is missing"))
        except Exception as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(" ".join(str(error).split())[:500]))
