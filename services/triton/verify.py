"""The verify stage: proves a served unit on a disposable Triton, never on the serving one.

    python -m services.triton.verify --spec spec.json

Exit codes are those of shared.stage_process; 2 means that the unit is unusable.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.triton.client import Client
from services.triton.embedded import EmbeddedTriton, disposable
from services.triton.load_test import latency, one_request, read_arrays
from services.triton.model_server import TritonServer
from services.triton.native import serves_on_gpus
from services.triton.parity import Parity, compare, format_value, refuse_skewed
from services.triton.repository import SIGNATURE, model_name, repository_of
from services.triton.tensors import tensors
from services.triton.wheel import installed
from shared import stage_process
from shared.artifacts import FsspecArtifacts
from shared.contracts.plans import at_batch, batches
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import File, StageSpec
from shared.contracts.strict import read
from shared.domain.errors import BadData, Invalid
from shared.domain.metric import count_of
from shared.ports import ServedUnit
from shared.serving.signature import Signature
from shared.stage_process import Attempt, Outcome

CATALOGUE, PARITY = "catalogue.npz", "parity.npz"
_TIMEOUT = 60.0
log = logging.getLogger("eyas.stage")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is stopped
    stage_process.main("verify", "services.triton.verify", perform)


def perform(attempt: Attempt) -> int:
    return attempt.publish(lambda: Outcome({}, *examine(attempt.spec, attempt.store, attempt.path.parent)), Outcome())


def examine(spec: StageSpec, store: FsspecArtifacts, scratch: Path) -> tuple[dict[str, float], dict[str, Any]]:
    signature = _signature(store.read(_input(spec, SIGNATURE)))
    gpu = serves_on_gpus()
    served = signature.gpu_files if gpu else signature.files
    files = {name: _input(spec, name) for name in (*served, SIGNATURE)}
    names = [model_input.name for model_input in signature.inputs] + [signature.output] + [feature.output for feature in signature.features]
    rows = read_arrays(store.fetch(_input(spec, PARITY), scratch / "inputs" / PARITY), names)
    items = [model_input.name for model_input in signature.side("item")]
    catalogue = read_arrays(store.fetch(_input(spec, CATALOGUE), scratch / "inputs" / CATALOGUE), items)

    triton = disposable(scratch / "triton")
    try:
        triton.start()
        if signature.steps and not gpu:
            log.warning("device: no GPU, the version is examined on the CPU")
        server = TritonServer(triton, repository_of(triton, store), timeout=_TIMEOUT)
        try:
            info, before = server.info(), triton.memory()
            faults = server.place(spec.recommender.name, [ServedUnit(spec.recommender.name, 1, files)])
            if faults:
                raise BadData(f"{signature.file}: Triton cannot serve it: {faults[1]}")
            parity = _parity(triton, spec.recommender.name, signature, rows)
            metrics, calls = _speed(server, spec.recommender, signature, catalogue, rows)
            metrics["size"] = sum(file.size for file in files.values()) / (1 << 20)
            memory = _memory(triton, signature, files) - before
            metrics |= {"parity": parity.difference, count_of("parity", "rows"): float(parity.rows)}
            metrics |= {"memory": memory / (1 << 20), "memory_server": before / (1 << 20)}
            log.info("memory: measured mib=%.0f server_mib=%.0f", metrics["memory"], metrics["memory_server"])
            log.info("size: measured mib=%.1f", metrics["size"])
        finally:
            server.close()
    finally:
        triton.stop(grace=0)  # no request is under way
        shutil.rmtree(triton.home, ignore_errors=True)
    facts = {
        "triton": info.version,
        "calls": calls,
        "parity_rows": parity.rows,
        "parity_features": [feature.column for feature in signature.features],
        "parity_worst": {model_input.name: format_value(rows[model_input.name][parity.row]) for model_input in signature.inputs},
        "libraries": installed(),
    }
    return metrics, facts


def _memory(triton: EmbeddedTriton, signature: Signature, files: Mapping[str, File]) -> int:
    """Returns the memory use, counting a memory-mapped weight file in full: other users' requests will load the rest."""
    resident = triton.memory()
    there = triton.mapped(signature.weights) if signature.weights else None
    return resident if signature.weights is None or there is None else resident - there + files[signature.weights].size


def _parity(triton: EmbeddedTriton, recommender: str, signature: Signature, rows: Mapping[str, Any]) -> Parity:
    outputs = [signature.output, *(feature.output for feature in signature.features)]
    client = Client(triton.address)
    try:
        model = model_name(recommender, signature, 1)
        parity = compare(lambda feed: client.outputs(model, 1, tensors(signature, feed), outputs, _TIMEOUT), signature, rows)
    finally:
        client.close()
    refuse_skewed(parity)
    log.info("parity: passed rows=%d features=%d largest_difference=%.2g", parity.rows, len(signature.features), parity.difference)
    return parity


def _speed(
    server: TritonServer, spec: RecommenderSpec, signature: Signature, catalogue: Mapping[str, Any], rows: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, int]]:
    """Measures each batch size that a gate names."""
    metrics: dict[str, float] = {}
    calls: dict[str, int] = {}
    for batch in batches(spec):
        size = batch or len(catalogue[signature.item])
        timing = latency(server, spec.name, 1, one_request(signature, catalogue, rows, size), size)
        log.info("speed: measured rows=%d p50_ms=%.2f p99_ms=%.2f rows_per_second=%.0f", size, timing.p50, timing.p99, timing.throughput)
        for name, value in (("latency_p50", timing.p50), ("latency_p99", timing.p99), ("throughput", timing.throughput)):
            metrics |= {at_batch(name, batch): value, count_of(at_batch(name, batch), "calls"): float(timing.calls)}
        calls[f"{size} rows"] = timing.calls
    return metrics, calls


def _input(spec: StageSpec, name: str) -> File:
    file = spec.inputs.get("export", {}).get(name)
    if file is None:
        raise Invalid(f"inputs: '{name}' of the stage export is missing; verify needs it")
    return file


def _signature(content: bytes) -> Signature:
    try:
        return read(Signature, json.loads(content), SIGNATURE)
    except ValueError as error:
        raise BadData(f"{SIGNATURE}: not JSON: {error}") from None


if __name__ == "__main__":
    main()
