"""A call for scores with lists padded, and with the same lists as values and offsets: its bytes, its time, and its CPU.

    python -m benchmarks.lists [--runs 5] [--calls 200]

On a real tritonserver, through the platform's own client. Items have lists of text or of integers: of two values on average and 16 at most,
or of 16 each. A call asks for 500 candidates, drawn anew each time, or for the whole catalogue, whose columns are the same in each.
The layouts take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import psutil

from benchmarks import serve_world
from benchmarks.harness import Row, benchmark, cpu_seconds, family, scratch, timed, turns
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


@benchmark("lists")
def lists(runs: int = 5, calls: int = 200) -> Iterator[Row]:
    with scratch() as folder:
        triton = EmbeddedTriton(folder / "triton")
        triton.start()
        store = FsspecArtifacts(str(folder / "artifacts"))
        server = TritonServer(triton, ModelRepository(triton.home, store), timeout=60)
        try:
            for kind in ("text", "int64", "full lists of text", "full lists of int64"):
                yield from measure(kind, server, triton, units(kind, folder / kind, store), runs, calls)
        finally:
            server.close()
            triton.stop()


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
    pairs = {"user": chance.integers(1, USERS + 1, ITEMS), "item": np.arange(1, ITEMS + 1)}
    pair_rows = pl.LazyFrame(pairs | {"time": np.zeros(ITEMS), "label": np.ones(ITEMS, np.int8)})
    graph = prepare(graph_of(spec, {}, table.schema, None, {}), table, None, pair_rows).fit(pair_rows).graph
    architecture = plan(graph, MlpParams(width=32), None)
    model = NeuralModel(architecture, begin(architecture, 1))
    units: dict[Lists, tuple[ServedUnit, Signature, Feed]] = {}
    for number, lists in enumerate(LAYOUTS, 1):
        served = signature(graph, Serve(lists=lists))
        (folder / "signature.json").write_text(served.model_dump_json())
        files = {name: store.put(path) for name, path in write_unit(graph, model, folder / "model.onnx", lists=lists).items()}
        files["signature.json"] = store.put(folder / "signature.json")
        columns = item_columns(table, served)
        for column in columns.values():
            column.flags.writeable = False  # as the gateway has them
        units[lists] = ServedUnit(spec.name, number, files), served, columns
    return units


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
        feeds = {lists: feeder(signature, columns, size) for lists, (_, signature, columns) in units.items()}
        sent = {lists: size_of(signature, feeds[lists](0)) for lists, (_, signature, _) in units.items()}
        first, second = (server.score(name, units[lists][0].number, feeds[lists](0)) for lists in LAYOUTS)
        np.testing.assert_array_equal(first, second)
        results: dict[Lists, list[tuple[float, float]]] = {layout: [] for layout in LAYOUTS}
        for layout in turns(LAYOUTS, runs + 1):
            results[layout].append(ask(server, triton, name, units[layout][0].number, feeds[layout], count))
        for layout in LAYOUTS:
            medians, processor = zip(*results[layout][1:], strict=True)  # the first one warms up
            yield Row(f"{case}, {kind}", layout, "bytes of a call", "B", [sent[layout]])
            yield Row(f"{case}, {kind}", layout, "a call, p50", "ms", medians)
            yield Row(f"{case}, {kind}", layout, "CPU of a call", "ms", processor)


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
    return sum(len(tensor._get_content() or b"") for tensor in tensors(signature, feed))


def ask(
    server: TritonServer, triton: EmbeddedTriton, name: str, number: int, feed: Callable[[int], Feed], calls: int
) -> tuple[float, float]:
    """Milliseconds of a call, the median; and milliseconds of the CPU for a call, the server's and the caller's."""
    processes = [psutil.Process(), *family(triton.pid or 0)]
    before, seconds = cpu_seconds(processes), []
    for call in range(calls):
        columns = feed(call)
        seconds.append(timed(lambda columns=columns: server.score(name, number, columns))[0])  # type: ignore[misc]
    return float(np.median(seconds) * 1000), 1000 * (cpu_seconds(processes) - before) / calls


if __name__ == "__main__":
    lists()
