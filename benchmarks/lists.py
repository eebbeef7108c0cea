"""A call for scores with lists padded, and with the same lists as values and offsets: its bytes, its time, and what it takes of the CPU.

    python -m benchmarks.lists [--runs 5] [--calls 200]

On a real tritonserver, through the platform's own client. Items have lists of text or of integers: of two values on average and 16 at most,
or of 16 each. A call asks for 500 candidates, drawn anew each time, or for the whole catalogue, whose columns are the same in each.
The layouts take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import psutil

from benchmarks import serve_world
from benchmarks.report import Row, publish
from pipelines.export.unit import write_unit
from pipelines.features.prepared import graph_of, prepare
from pipelines.features.raw import item_columns, signature
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from services.triton.tensors import tensors
from shared.artifacts import FsspecArtifacts
from shared.contracts.serving import Lists, Serve
from shared.ports import ServedUnit
from shared.serving.signature import Signature

ITEMS, USERS, WIDTH, CANDIDATES = 20_000, 1_000, 16, 500
WORDS = [f"word-{number}" for number in range(500)]
LAYOUTS: tuple[Lists, ...] = get_args(Lists)
Feed = dict[str, np.ndarray[Any, Any]]


@dataclass
class Measured:
    times: list[float] = field(default_factory=list)
    """Milliseconds of one call: medians."""
    processor: list[float] = field(default_factory=list)
    """Milliseconds of the CPU for one call, the server's and the caller's."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    said = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        triton = EmbeddedTriton(Path(folder) / "triton")
        triton.start()
        store = FsspecArtifacts(str(Path(folder) / "artifacts"))
        server = TritonServer(triton, ModelRepository(triton.home, store), timeout=60)
        try:
            for kind in ("text", "int64", "full lists of text", "full lists of int64"):
                rows += measure(kind, server, triton, units(kind, Path(folder) / kind, store), said.runs, said.calls)
        finally:
            server.close()
            triton.stop()
    publish("lists", rows)
    return 0


def units(kind: str, folder: Path, store: FsspecArtifacts) -> dict[Lists, tuple[ServedUnit, Signature, Feed]]:
    """One model in both layouts, and the catalogue's columns."""
    from pipelines.models.mlp import plan
    from pipelines.models.neural.model import NeuralModel
    from pipelines.models.neural.weights import begin
    from shared.contracts.families import MlpParams

    folder.mkdir()
    name = f"lists-{kind.replace(' ', '-')}"
    features = [{"categorify": ["userId", "movieId"]}, {"multi_hot": "words"}]
    spec, table = serve_world.spec(name, features=features), items(kind)
    chance = np.random.default_rng(2)
    seen = {"user": chance.integers(1, USERS + 1, ITEMS), "item": np.arange(1, ITEMS + 1)}
    seen_rows = pl.LazyFrame(seen | {"time": np.zeros(ITEMS), "label": np.ones(ITEMS, np.int8)})
    graph = prepare(graph_of(spec, {}, table.schema, None, {}), table, None, seen_rows).fit(seen_rows).graph
    architecture = plan(graph, MlpParams(width=32), None)
    model = NeuralModel(architecture, begin(architecture, 1))
    found: dict[Lists, tuple[ServedUnit, Signature, Feed]] = {}
    for number, lists in enumerate(LAYOUTS, 1):
        served = signature(graph, Serve(lists=lists))
        (folder / "signature.json").write_text(served.model_dump_json())
        files = {name: store.put(path) for name, path in write_unit(graph, model, folder / "model.onnx", lists=lists).items()}
        files["signature.json"] = store.put(folder / "signature.json")
        columns = item_columns(table, served)
        for column in columns.values():
            column.flags.writeable = False  # as the gateway has them
        found[lists] = ServedUnit(spec.name, number, files), served, columns
    return found


def items(kind: str) -> pl.DataFrame:
    """Two values an item on average, and the first has 16; or each has 16."""
    chance = np.random.default_rng(1)
    counts = np.full(ITEMS, WIDTH) if kind.startswith("full") else np.append(WIDTH, chance.integers(1, 4, ITEMS - 1))
    words = [chance.choice(len(WORDS), count, replace=False) for count in counts]
    values = [[WORDS[word] for word in row] if kind.endswith("text") else row.tolist() for row in words]
    return pl.DataFrame({"movieId": np.arange(1, ITEMS + 1), "words": values})


def measure(
    kind: str, server: TritonServer, triton: EmbeddedTriton, units: dict[Lists, tuple[ServedUnit, Signature, Feed]], runs: int, calls: int
) -> Iterator[Row]:
    name = next(iter(units.values()))[0].recommender
    if faults := server.place(name, [unit for unit, _, _ in units.values()]):
        raise RuntimeError(f"not served: {faults}")
    for case, size, count in ((f"{CANDIDATES} candidates", CANDIDATES, calls), (f"all {ITEMS:,} items", ITEMS, max(10, calls // 10))):
        found = {lists: Measured() for lists in LAYOUTS}
        feeds = {lists: feeder(signature, columns, size) for lists, (_, signature, columns) in units.items()}
        sent = {lists: size_of(signature, feeds[lists](0)) for lists, (_, signature, _) in units.items()}
        first, second = (server.score(name, units[lists][0].number, feeds[lists](0)) for lists in LAYOUTS)
        np.testing.assert_array_equal(first, second)
        for run in range(runs + 1):
            for lists in LAYOUTS if run % 2 else LAYOUTS[::-1]:
                times, processor = ask(server, triton, name, units[lists][0].number, feeds[lists], count)
                if run:  # the first one warms up
                    found[lists].times.append(float(np.median(times) * 1000))
                    found[lists].processor.append(1000 * processor / count)
        for lists in LAYOUTS:
            yield Row(f"{case}, {kind}", lists, "bytes of a call", "B", [sent[lists]])
            yield Row(f"{case}, {kind}", lists, "a call, p50", "ms", found[lists].times)
            yield Row(f"{case}, {kind}", lists, "CPU of a call", "ms", found[lists].processor)


def feeder(signature: Signature, columns: Feed, size: int) -> Callable[[int], Feed]:
    """One user with candidates that are drawn by the call's number, or with the catalogue as it is."""

    def feed(number: int) -> Feed:
        user = {signature.user: np.full(size, 1 + number % USERS)}
        if size == len(columns[signature.item]):
            return user | columns
        rows = np.random.default_rng(number).integers(0, ITEMS, size)
        return user | {name: column[rows] for name, column in columns.items()}

    return feed


def size_of(signature: Signature, feed: Feed) -> int:
    return sum(len(one._get_content() or b"") for one in tensors(signature, feed))


def ask(
    server: TritonServer, triton: EmbeddedTriton, name: str, number: int, feed: Callable[[int], Feed], calls: int
) -> tuple[list[float], float]:
    """Seconds of each call, and what all of them took of the CPU."""
    times: list[float] = []
    before = spent(triton)
    for call in range(calls):
        given = feed(call)
        began = time.perf_counter()
        server.score(name, number, given)
        times.append(time.perf_counter() - began)
    after = spent(triton)
    return times, sum(after[pid] - before[pid] for pid in before.keys() & after.keys())


def spent(triton: EmbeddedTriton) -> dict[int, float]:
    """By process; one that ends meanwhile tried a version before it was listed."""
    found: dict[int, float] = {}
    for one in (psutil.Process(), (server := psutil.Process(triton.pid)), *server.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            found[one.pid] = times.user + times.system
    return found


if __name__ == "__main__":
    raise SystemExit(main())
