"""Latency of a served network on a GPU, as an ensemble of steps, beside the same network on the CPU of the same Triton.

    EYAS_TRITON_SERVER=/opt/tritonserver EYAS_GPUS=1 python -m benchmarks.gpu_serving [--rows 500 10000 100000] [--callers 8]

It needs NVIDIA's tritonserver with its backends, as in the image eyas-triton-gpu. With --on-cpus the steps run on the CPU by the embedded
Triton, to see on any machine that the path works. Callers ask at the same time, so that Triton can batch their calls.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.harness import Row, benchmark, scratch
from benchmarks.units import ITEMS, graph_of
from pipelines.export.unit import named, write_unit_in_steps
from pipelines.features.raw import signature
from pipelines.models.mlp import plan
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.weights import begin
from services.triton.embedded import EmbeddedTriton
from services.triton.load_test import latency
from services.triton.model_server import TritonServer
from services.triton.native import serves_on_gpus
from services.triton.repository import ModelRepository
from shared.artifacts import FsspecArtifacts
from shared.contracts.families import MlpParams
from shared.ports import ServedUnit
from shared.serving.config import server_configs
from shared.serving.signature import Signature

USERS = 100_000
CALLS = 50
"""Calls of each caller."""


@benchmark("gpu-serving")
def gpu_serving(rows: Sequence[int] = (500, 10_000, 100_000), width: int = 64, callers: int = 8, on_cpus: bool = False) -> Iterator[Row]:
    if not on_cpus and not serves_on_gpus():
        raise SystemExit("no Triton with a GPU: set EYAS_TRITON_SERVER and EYAS_GPUS, or --on-cpus to see that the path works")
    with (
        scratch(on_disk=True) as folder,
        patch("services.triton.repository.server_configs", configs_on_cpus if on_cpus else server_configs),
    ):
        store = FsspecArtifacts(str(folder / "artifacts"))
        unit = _unit(folder, store, width)
        for device, gpu in (("cpu", False), ("steps on the CPU" if on_cpus else "gpu", True)):
            triton = EmbeddedTriton(folder / f"triton-{gpu}")
            triton.start()
            server = TritonServer(triton, ModelRepository(triton.home, store, partial(bool, gpu)), timeout=60)
            try:
                if faults := server.place("model", [unit]):
                    raise RuntimeError(f"not served: {faults}")
                for size in rows:
                    yield from _measured(server, size, callers, f"{size:,} rows", device)
            finally:
                server.close()
                triton.stop()


def _measured(server: TritonServer, size: int, callers: int, case: str, device: str) -> Iterator[Row]:
    feed = {"user": np.full(size, 7), "item": np.arange(size) % ITEMS}
    timing = latency(server, "model", 1, feed, size)
    yield Row(case, device, "p50", "ms", [timing.p50])
    yield Row(case, device, "p99", "ms", [timing.p99])
    began = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(lambda _: server.score("model", 1, feed), range(callers * CALLS)))
    yield Row(case, device, f"{callers} callers", "rows/s", [callers * CALLS * size / (time.perf_counter() - began)])


def _unit(folder: Path, store: FsspecArtifacts, width: int) -> ServedUnit:
    graph = graph_of(USERS)
    layout = plan(graph, MlpParams(width=width), None)
    files, served = write_unit_in_steps(graph, NeuralModel(layout, begin(layout, 1)), signature(graph), folder / "model.onnx")
    path = folder / "signature.json"
    path.write_text(named(served, files).model_dump_json())
    return ServedUnit("model", 1, {name: store.put(file) for name, file in (files | {path.name: path}).items()})


def configs_on_cpus(name: str, served: Signature, versions: Iterable[int], gpu: bool) -> dict[str, str]:
    """Returns what a server reads that computes the steps for GPUs on its CPU."""
    return {model: text.replace("KIND_GPU", "KIND_CPU") for model, text in server_configs(name, served, versions, gpu).items()}


if __name__ == "__main__":
    gpu_serving()
