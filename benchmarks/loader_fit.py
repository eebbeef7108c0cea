"""How fast a model trains by what feeds it: `python -m benchmarks.loader --fit`.

The same Keras model and `model.fit`, on TensorFlow: Merlin's in the Keras 2 that it needs. Beside them the limit: one batch again and
again. What a step takes longer than there is the loader's doing: waiting for it, and the cores that it takes from the model.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.loader_contenders import PEERS, POOL, merlin
from benchmarks.loader_processes import BATCH, prepare, watched
from benchmarks.report import Row, publish

ROWS = 4_000_000
LIMIT, MERLIN_LIMIT = "limit", "limit in Merlin's environment"


@dataclass(frozen=True)
class Model:
    name: str
    width: int
    units: str


MODELS = (
    Model("small: width 8, one layer of 16", 8, "16"),
    Model("notebook's, width 32", 32, "128,128,128"),
    Model("notebook's, width 512", 512, "128,128,128"),
)
SOURCES: dict[str, tuple[str, Callable[[], str]]] = {
    LIMIT: ("limit", lambda: sys.executable),
    "eyas, Parquet": ("eyas-parquet", lambda: sys.executable),
    "eyas, cache": ("eyas-cache", lambda: sys.executable),
    "tensorflow: windowed": ("windowed", lambda: sys.executable),
    "merlin": ("merlin", merlin),
    MERLIN_LIMIT: ("limit", merlin),
}
Speeds = dict[tuple[str, str], list[float]]


def measure(folder: Path, runs: int, steps: int, count: int = ROWS) -> list[Row]:
    place = prepare(folder / str(count), count, {"rows", "cache"})
    speeds: Speeds = {}
    for _ in range(runs):
        for model in MODELS:
            for name, (source, python) in SOURCES.items():
                asked = [source, str(place), str(BATCH), str(POOL), str(model.width), model.units, str(steps)]
                said, _, _ = watched([python(), str(PEERS / "loader_fit.py"), *asked])
                speeds.setdefault((model.name, name), []).append(said["rows"] / said["seconds"])
                Console().print(f"{model.name}, {name}: {said['rows'] / said['seconds']:,.0f} rows/s, loss {said['loss']:.3f}")
    rows = table(speeds, steps)
    publish("loader-fit", rows)
    return rows


def table(speeds: Speeds, steps: int) -> list[Row]:
    rows = []
    for (model, name), values in speeds.items():
        ratios = {other: statistics.median(values) / statistics.median(theirs) for (of, other), theirs in speeds.items() if of == model}
        rows.append(Row(model, name, "training", "rows/s", values, {who: one for who, one in ratios.items() if who != name}))
        limit = ratios[MERLIN_LIMIT if name == "merlin" else LIMIT]
        if name not in (LIMIT, MERLIN_LIMIT):
            rows.append(Row(model, name, "of a step by the loader", "%", [100 * (1 - min(1.0, limit))], note=f"{steps} steps"))
    return rows
