"""Measures a served unit's latency for `verify` on the real server, and reads the request arrays from files."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shared.domain.errors import BadData
from shared.ports import ModelServer
from shared.serving.signature import Signature

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]
_WARM_UP = 10
CALLS, ENOUGH = 200, 20
_PATIENCE = 30.0


@dataclass(frozen=True)
class MeasuredLatency:
    p50: float
    p99: float
    """Milliseconds of one call, measured by its caller."""
    throughput: float
    """Rows per second of one caller."""
    calls: int


def latency(server: ModelServer, recommender: str, number: int, feed: Columns, rows: int) -> MeasuredLatency:
    """Makes sequential calls: 200, or as many as fit into 30 seconds, but at least 20."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < _WARM_UP + CALLS:
        started = time.perf_counter()
        server.score(recommender, number, feed)
        ended = time.perf_counter()
        times.append(ended - started)
        if ended - began > _PATIENCE and len(times) >= _WARM_UP + ENOUGH:
            break
    measured = np.asarray(times[_WARM_UP:])
    p50, p99 = np.percentile(measured, [50, 99]) * 1000
    return MeasuredLatency(float(p50), float(p99), float(rows * len(measured) / measured.sum()), len(measured))


def one_request(signature: Signature, catalogue: Columns, users: Columns, batch: int) -> dict[str, Array]:
    """Builds a gateway's request: one user with `batch` items of the catalogue, repeated if it is shorter."""
    item_rows = np.arange(batch) % len(catalogue[signature.item])
    user_rows = np.zeros(batch, dtype=np.int64)
    feed = {model_input.name: catalogue[model_input.name][item_rows] for model_input in signature.side("item")}
    return feed | {model_input.name: users[model_input.name][user_rows] for model_input in signature.request_inputs()}


def read_arrays(path: Path, names: list[str]) -> dict[str, Array]:
    """Reads the named arrays, which must have equal lengths. Never unpickles."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:  # numpy leaves a damaged file open
            if missing := [name for name in names if name not in content.files]:
                raise BadData(f"{path.name}: the array '{missing[0]}' is missing; signature.json names it")
            arrays = {name: content[name] for name in names}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise BadData(f"{path.name}: cannot be read: {error}") from None
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise BadData(f"{path.name}: all arrays must have the same length, at least one row")
    return arrays
