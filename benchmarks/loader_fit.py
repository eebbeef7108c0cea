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


@dataclass(frozen=True)
class Trained:
    """Rows a second, and seconds of CPU a million rows."""

    speed: float
    cost: float


Found = dict[tuple[str, str], list[Trained]]


def measure(folder: Path, runs: int, steps: int, count: int = ROWS) -> list[Row]:
    place = prepare(folder / str(count), count, {"rows", "cache"})
    found: Found = {}
    for _ in range(runs):
        for model in MODELS:
            for name, (source, python) in SOURCES.items():
                asked = [source, str(place), str(BATCH), str(POOL), str(model.width), model.units, str(steps)]
                said, _, _ = watched([python(), str(PEERS / "loader_fit.py"), *asked])
                had = Trained(said["rows"] / said["seconds"], 1e6 * said["cpu"] / said["rows"])
                found.setdefault((model.name, name), []).append(had)
                told = f"{model.name}, {name}: {had.speed:,.0f} rows/s, {had.cost:.2f} s CPU a million, loss {said['loss']:.3f}"
                Console(soft_wrap=True).print(told)
    rows = table(found, steps)
    publish("loader-fit", rows)
    return rows


def table(found: Found, steps: int) -> list[Row]:
    rows = []
    medians = {key: statistics.median(one.speed for one in runs) for key, runs in found.items()}
    for (model, name), runs in found.items():
        ratios = {other: medians[model, name] / theirs for (of, other), theirs in medians.items() if of == model}
        limit = medians[model, name] / medians[model, MERLIN_LIMIT if name in ("merlin", MERLIN_LIMIT) else LIMIT]
        del ratios[name]
        rows.append(Row(model, name, "training", "rows/s", [one.speed for one in runs], ratios, f"{steps} steps of {BATCH:,} rows"))
        rows.append(Row(model, name, "CPU a million rows", "s", [one.cost for one in runs]))
        if name not in (LIMIT, MERLIN_LIMIT):
            rows.append(Row(model, name, "of a step by the loader", "%", [100 * (1 - min(1.0, limit))]))
    return rows
