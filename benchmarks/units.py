"""Units beyond the 2 GB of a graph: memory and time of exporting, placing and scoring, by the size of a table.

    python -m benchmarks.units [--rows 250000] [--width 64]

`--rows 2000000,4000000,9000000` are 0.5, 1 and 2.3 GB: 12 GB of disk at most, and one size after the other. The model is an `mlp` whose
vectors are drawn at random; the figures don't depend on the values. Each size is exported in a process of its own, as the
stage does it: weights are read, the unit is written, rows are scored by NumPy and by ONNX Runtime. Then it is placed on a real
tritonserver, which answers the same rows. Peaks are of the process's resident bytes within that step; `of its own` leaves out what is a
mapped file's and can be dropped at any time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl

from benchmarks.harness import HIDDEN, Peak, Row, benchmark, memory, scratch, timed

ITEMS, SCORED = 50_000, 5_000


@benchmark("units")
def units(rows: Sequence[int] = (250_000,), width: int = 64, export_to: Annotated[Path | None, HIDDEN] = None) -> Iterator[Row]:
    if export_to is not None:
        (export_to / "figures.json").write_text(json.dumps(export(export_to, rows[0], width)))
        raise SystemExit
    for size in rows:
        with scratch(on_disk=True) as folder:
            case = f"{size:,} x {width}, {size * width * 4 / 1e9:.2f} GB"
            command = [sys.executable, "-m", "benchmarks.units", "--export-to", str(folder), "--rows", str(size), "--width", str(width)]
            subprocess.run(command, check=True)  # noqa: S603  itself
            for name, value in (json.loads((folder / "figures.json").read_text()) | serve(folder)).items():
                yield Row(case, "eyas", name, _unit(name), [value])


def _unit(name: str) -> str:
    return "s" if name.endswith("time") else "" if name.endswith("difference") else "MB"


def graph_of(users: int) -> Any:
    from pipelines.features.engines.polars import PreparedTables
    from pipelines.features.graph import Tables, compile_graph
    from shared.contracts.features import Categorify

    schema = pl.Schema({"user": pl.Int64(), "item": pl.Int64(), "at": pl.Int64()})
    graph = compile_graph((Categorify(categorify=("user", "item")),), Tables("user", "item", "at", schema))
    places = np.arange(users)
    seen = pl.LazyFrame({"user": places, "item": places % ITEMS, "at": places})
    return graph.fit(PreparedTables(seen, None, None, graph.row))


def export(folder: Path, users: int, width: int) -> dict[str, float]:
    """Writes what the stage would publish, and returns what that took."""
    from pipelines.arrays import read_arrays, write_arrays
    from pipelines.evaluation.scorers import onnx_session
    from pipelines.export.unit import named, write_unit
    from pipelines.features.raw import signature
    from pipelines.models.mlp import plan
    from pipelines.models.neural.model import NeuralModel
    from pipelines.models.neural.weights import begin
    from shared.contracts.families import MlpParams
    from shared.contracts.serving import Serve

    figures: dict[str, float] = {}
    graph = graph_of(users)
    layout = plan(graph, MlpParams(width=width), None)
    path = write_arrays(folder / "weights.npz", begin(layout, 1))
    figures["weights.npz"] = path.stat().st_size / 1e6
    with step("weights read", figures):
        weights = read_arrays(path)
    path.unlink()
    model = NeuralModel(layout, weights)
    with step("unit written", figures):
        files = write_unit(graph, model, folder / "model.onnx")
    for name, file in files.items():
        figures[name] = file.stat().st_size / 1e6
    served = named(signature(graph, Serve()), files)
    (folder / "signature.json").write_text(served.model_dump_json())
    chance = np.random.default_rng(2)
    keys = {"user": chance.integers(0, users, SCORED), "item": chance.integers(0, ITEMS, SCORED)}
    codes = {code.name: (graph.key(code.name).state.coded(pl.Series(keys[code.name]))) for code in graph.codes}
    feed: dict[str, Any] = {
        name: keys[name] if name in keys else codes[name.partition("@")[0]] for name in [column.name for column in served.inputs]
    }
    feed = {name: np.asarray(values).astype(np.int64) for name, values in feed.items()}
    with step("NumPy scores", figures):
        expected = model.score(codes)
    del model, weights
    with step("ONNX Runtime scores", figures):
        session = onnx_session(files["model.onnx"])
        answered = session.run(["score"], feed)[0]
    figures["ONNX Runtime, largest difference"] = float(np.abs(answered - expected).max())
    np.savez(folder / "scored.npz", score=expected, **feed)
    return figures


def serve(folder: Path) -> dict[str, float]:
    """Placed as the platform places a version, and asked the same rows."""
    from services.triton.embedded import EmbeddedTriton
    from services.triton.model_server import TritonServer
    from services.triton.repository import ModelRepository
    from shared.artifacts import FsspecArtifacts
    from shared.ports import ServedUnit
    from shared.serving.signature import WEIGHTS

    store = FsspecArtifacts(str(folder / "artifacts"))
    files = {}
    for name in ("model.onnx", WEIGHTS, "signature.json"):
        if (folder / name).exists():
            files[name] = store.put(folder / name)
            (folder / name).unlink()
    with np.load(folder / "scored.npz", allow_pickle=False) as stored:
        feed = dict(stored)
    expected, figures = feed.pop("score"), dict[str, float]()
    triton = EmbeddedTriton(folder / "triton")
    triton.start()
    server = TritonServer(triton, ModelRepository(triton.home, store), timeout=60)
    try:
        before = triton.memory()
        figures["placed, time"], faults = timed(lambda: server.place("large", [ServedUnit("large", 1, files)]))
        if faults:
            raise RuntimeError(f"not served: {faults}")
        figures["placed, memory"] = (triton.memory() - before) / 1e6
        figures[f"first {SCORED:,} rows, time"], answered = timed(lambda: server.score("large", 1, feed))
        figures["answered, memory"] = (triton.memory() - before) / 1e6
        figures["answered, of it mapped"] = (triton.mapped(WEIGHTS) or 0) / 1e6
        figures["Triton, largest difference"] = float(np.abs(answered - expected).max())
    finally:
        server.close()
        triton.stop()
    return figures


@contextmanager
def step(name: str, figures: dict[str, float]) -> Iterator[None]:
    """Its time, and the peaks of memory within it."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    began = time.monotonic()
    with Peak(lambda: _status("RssAnon"), every=0.01) as own:
        yield
    figures[f"{name}, time"] = time.monotonic() - began
    figures[f"{name}, peak"] = _status("VmHWM")
    figures[f"{name}, peak of its own"] = max(own.value, _status("RssAnon"))


def _status(name: str) -> float:
    """MB of this process."""
    return memory(os.getpid(), name) * 2**20 / 1e6


if __name__ == "__main__":
    units()
