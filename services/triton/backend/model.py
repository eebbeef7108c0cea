"""The `onnxruntime` backend of the embedded server: Triton's Python backend, running `model.onnx` with ONNX Runtime.

The wheel's tritonserver has no native ONNX Runtime backend. This file replaces it under the same name, so config.pbtxt and the version
folders equal a cluster's. Only numpy and onnxruntime can be imported here. One process serves one version; a failed request is an error
of that request only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

_ALARM = 15.0
_AGAIN = 0.5


def _end_with_the_server() -> None:
    """Kills this process as soon as the server has ended.

    Triton's own stub notices within two seconds and calls `exit` while another thread imports, loads or waits for the server: one in four
    such exits deadlocks, sometimes with the interpreter's lock held. So a kernel timer, renewed again and again, also kills the process.
    (The kernel's parent-death signal comes when the *thread* that forked ends, right after the load: too early. Measured on 2.51.)
    """
    server = os.getppid()
    if str(server).encode() not in Path("/proc/self/cmdline").read_bytes().split(b"\0"):  # the arguments name the first parent
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ends = os.pidfd_open(server)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)
        return
    while True:
        signal.setitimer(signal.ITIMER_REAL, _ALARM)
        if select.select([ends], [], [], _AGAIN)[0]:
            os.kill(os.getpid(), signal.SIGKILL)


# Starts first: the imports below take a second.
threading.Thread(target=_end_with_the_server, name="server", daemon=True).start()

import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402

_CACHED_BYTES = 1 << 20
_PATIENCE = 90.0
_LOOK = 0.5
_LAST = 10.0
_LOAD = 240.0
_length = struct.Struct("<I").unpack_from
_TYPES = {"TYPE_FP32": np.float32, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64, "TYPE_STRING": np.object_}


def _decode(raw: bytes) -> np.ndarray[Any, Any]:
    """Decodes Triton's BYTES (four bytes of length, then the text) into the str objects that ONNX Runtime takes."""
    texts: list[str] = []
    at, end, add = 0, len(raw), texts.append
    while at < end:
        (size,) = _length(raw, at)
        at += 4
        add(str(raw[at : at + size], "utf-8") if size else "")
        at += size
    array = np.empty(len(texts), dtype=np.object_)
    array[:] = texts
    return array


_decode_again = lru_cache(maxsize=16)(_decode)


def _texts(encoded: Any) -> np.ndarray[Any, Any]:
    """Decodes texts with a cache: catalogue columns recur in every call."""
    raw = bytes(encoded)
    return _decode_again(raw) if len(raw) <= _CACHED_BYTES else _decode(raw)


# Triton calls this for each text input before `execute`; its own loop takes milliseconds on a catalogue.
pb_utils.deserialize_bytes_tensor = _texts


class CallerWatch:
    """Ends a run whose caller no longer waits, or else this process: an endless graph would keep a core forever and could not be unloaded.

    The request carries its caller's timeout. (Triton can say whether the caller has left, but crashes if asked while the answer is sent.
    Measured on 2.51.)
    """

    def __init__(self) -> None:
        self._run: tuple[float, ort.RunOptions] | None = None
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def begin(self, seconds: float) -> ort.RunOptions:
        options = ort.RunOptions()
        self._run = (time.monotonic() + seconds, options)
        return options

    def end(self) -> None:
        self._run = None

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK)
            run, now = self._run, time.monotonic()
            if run is None or now < run[0]:
                continue
            run[1].terminate = True
            if now > run[0] + _LAST:
                os.kill(os.getpid(), signal.SIGKILL)


class Output:
    """An output as config.pbtxt declares it. Other outputs are rejected: they could fill the shared memory of all models."""

    def __init__(self, declared: dict[str, Any], batched: bool) -> None:
        self.name: str = declared["name"]
        self._type = _TYPES[declared["data_type"]]
        inner = declared.get("reshape", {}).get("shape", declared["dims"]) if batched else declared["dims"][1:]
        self._width = [int(dimension) for dimension in inner]

    def check(self, value: Any, rows: int) -> None:
        if value.dtype != self._type:
            raise ValueError(f"output '{self.name}' has the type {value.dtype}, expected {np.dtype(self._type)}")
        if value.shape != (rows, *self._width):
            raise ValueError(f"output '{self.name}' has the shape {value.shape} for {rows} rows, expected {(rows, *self._width)}")


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self._watch = CallerWatch()
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._watch.begin(_LOAD)
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        finally:
            self._watch.end()
        self._inputs = [node.name for node in self._session.get_inputs()]
        graph_outputs = {node.name for node in self._session.get_outputs()}
        config = json.loads(args["model_config"])
        self._key = config["input"][0]["name"]  # one value per row, unlike values and offsets of lists
        self._outputs = {declared["name"]: Output(declared, int(config.get("max_batch_size", 0)) > 0) for declared in config["output"]}
        if missing := [name for name in self._outputs if name not in graph_outputs]:
            raise pb_utils.TritonModelException(f"the graph has no output '{missing[0]}'")

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            feed = {name: arrays[name] for name in self._inputs}
            outputs = [self._outputs[name] for name in list(request.requested_output_names()) or self._outputs]
            options = self._watch.begin(request.timeout() / 1e6 or _PATIENCE)
            try:
                results = self._session.run([output.name for output in outputs], feed, options)
            finally:
                self._watch.end()
            rows = len(arrays[self._key])
            for output, value in zip(outputs, results, strict=True):
                output.check(value, rows)
            return pb_utils.InferenceResponse([pb_utils.Tensor(output.name, value) for output, value in zip(outputs, results, strict=True)])
        except KeyError as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"input {error} is missing"))
        except Exception as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(" ".join(str(error).split())[:500]))
