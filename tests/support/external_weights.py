"""Small units whose weights lie beside their graph: version n scores a row `user + n * item`, and n is in `weights.bin` alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from shared.contracts.stage import File
from shared.ports import ArtifactStore, ServedUnit
from shared.serving.signature import WEIGHTS
from shared.testing.model_server_suite import tiny_model, tiny_unit

MODEL, SIGNATURE = "model.onnx", "signature.json"
PAGES = 64
"""Of the file: what is read of it is in the last one."""


def model(location: str = WEIGHTS, *, tags: bool = False) -> bytes:
    """Equal for all versions."""
    found = onnx.load_model_from_string(tiny_model(0, tags=tags))
    tensor = next(one for one in found.graph.initializer if one.name == "factor")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", 4096 * (PAGES - 1)), ("length", 4)):
        tensor.external_data.add(key=key, value=str(value))
    return found.SerializeToString()


def weights(number: float) -> bytes:
    return np.full(PAGES * 1024, number, np.float32).tobytes()


def stored(store: ArtifactStore, name: str, content: bytes) -> File:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return store.put(path)


def unit(store: ArtifactStore, recommender: str, number: int, location: str = WEIGHTS, *, tags: bool = False) -> ServedUnit:
    files = dict(tiny_unit(store, recommender, number, tags=tags, model=model(location, tags=tags)).files)
    signature = store.read(files[SIGNATURE]).decode()
    files[SIGNATURE] = stored(store, SIGNATURE, f'{{"weights": "{WEIGHTS}", {signature[1:]}'.encode())
    return ServedUnit(recommender, number, files | {WEIGHTS: stored(store, WEIGHTS, weights(number))})
