"""Units beyond the 2 GB of a graph: what exporting, placing and scoring take of memory and time, by the size of a table.

    python -m benchmarks.units [--rows 250000] [--width 64]

`--rows 2000000,4000000,9000000` are 0.5, 1 and 2.3 GB: 12 GB of disk at most, and one size after the other. The model is an `mlp` whose
vectors are drawn at random; what is measured doesn't depend on what was learned. Each size is exported in a process of its own, as the
stage does it: weights are read, the unit is written, rows are scored by NumPy and by ONNX Runtime. Then it is placed on a real
tritonserver, which answers the same rows. Peaks are of the process's resident bytes within that step; `of its own` leaves out what is a
mapped file's and can be dropped at any time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import Row, publish

ITEMS, ASKED = 50_000, 5_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="250000")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    said = parser.parse_args()
    sizes = [int(one) for one in said.rows.split(",")]
    if said.export is not None:
        (said.export / "found.json").write_text(json.dumps(export(said.export, sizes[0], said.width)))
        return 0
    rows: list[Row] = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir="var" if Path("var").is_dir() else None) as folder:
            rows += measure(Path(folder), size, said.width)
    publish("units", rows)
    return 0


def measure(folder: Path, size: int, width: int) -> list[Row]:
    case = f"{size:,} x {width}, {size * width * 4 / 1e9:.2f} GB"
    command = [sys.executable, "-m", "benchmarks.units", "--export", str(folder), "--rows", str(size), "--width", str(width)]
    subprocess.run(command, check=True)  # noqa: S603  itself
    found = json.loads((folder / "found.json").read_text()) | serve(folder)
    return [Row(case, "eyas", name, _unit(name), [value]) for name, value in found.items()]


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
    """Writes what the stage would publish, and says what that took."""
    from pipelines.evaluation.scorers import onnx_session
    from pipelines.export.unit import named, write_unit
    from pipelines.features.raw import signature
    from pipelines.models.mlp import plan
    from pipelines.models.neural.model import NeuralModel
    from pipelines.models.neural.weights import begin, load_weights, save_weights
    from shared.contracts.families import MlpParams
    from shared.contracts.serving import Serve

    found: dict[str, float] = {}
    graph = graph_of(users)
    layout = plan(graph, MlpParams(width=width), None)
    path = save_weights(begin(layout, 1), folder / "weights.npz")
    found["weights.npz"] = path.stat().st_size / 1e6
    with step("weights read", found):
        weights = load_weights(path)
    path.unlink()
    model = NeuralModel(layout, weights)
    with step("unit written", found):
        files = write_unit(graph, model, folder / "model.onnx")
    for name, one in files.items():
        found[name] = one.stat().st_size / 1e6
    served = named(signature(graph, Serve()), files)
    (folder / "signature.json").write_text(served.model_dump_json())
    chance = np.random.default_rng(2)
    asked = {"user": chance.integers(0, users, ASKED), "item": chance.integers(0, ITEMS, ASKED)}
    codes = {one.name: (graph.key(one.name).state.coded(pl.Series(asked[one.name]))) for one in graph.codes}
    feed: dict[str, Any] = {one.name: asked[one.name] if one.name in asked else codes[one.name.partition("@")[0]] for one in served.inputs}
    feed = {name: np.asarray(values).astype(np.int64) for name, values in feed.items()}
    with step("NumPy scores", found):
        expected = model.score(codes)
    del model, weights
    with step("ONNX Runtime scores", found):
        session = onnx_session(files["model.onnx"])
        answered = session.run(["score"], feed)[0]
    found["ONNX Runtime, largest difference"] = float(np.abs(answered - expected).max())
    np.savez(folder / "asked.npz", score=expected, **feed)
    return found


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
    with np.load(folder / "asked.npz", allow_pickle=False) as stored:
        feed = dict(stored)
    expected, found = feed.pop("score"), dict[str, float]()
    triton = EmbeddedTriton(folder / "triton")
    triton.start()
    server = TritonServer(triton, ModelRepository(triton.home, store), timeout=60)
    try:
        before, begun = triton.memory(), time.monotonic()
        if faults := server.place("large", [ServedUnit("large", 1, files)]):
            raise RuntimeError(f"not served: {faults}")
        found["placed, time"] = time.monotonic() - begun
        found["placed, memory"] = (triton.memory() - before) / 1e6
        begun = time.monotonic()
        answered = server.score("large", 1, feed)
        found[f"first {ASKED:,} rows, time"] = time.monotonic() - begun
        found["answered, memory"] = (triton.memory() - before) / 1e6
        found["answered, of it mapped"] = (triton.mapped(WEIGHTS) or 0) / 1e6
        found["Triton, largest difference"] = float(np.abs(answered - expected).max())
    finally:
        server.close()
        triton.stop()
    return found


@contextmanager
def step(name: str, found: dict[str, float]) -> Iterator[None]:
    """Its time, and the peaks of memory within it."""
    own, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            own[0] = max(own[0], _status("RssAnon"))

    watching = threading.Thread(target=look)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    begun = time.monotonic()
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
    found[f"{name}, time"] = time.monotonic() - begun
    found[f"{name}, peak"] = _status("VmHWM") / 1e6
    found[f"{name}, peak of its own"] = max(own[0], _status("RssAnon")) / 1e6


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1]) * 1024 for one in lines if one.startswith(f"{name}:"))


if __name__ == "__main__":
    sys.exit(main())
