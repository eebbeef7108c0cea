"""The verify stage: proves a served unit on a disposable Triton, never on the serving one.

    python -m services.triton.verify --spec spec.json

Reads spec.json and publishes one manifest, like every stage. Exit 0: published. Exit 2: the unit is unusable; the manifest holds the
reason, and a retry does not help. Exit 1: any other fault; nothing was published.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import shutil
import signal
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.triton.client import Client
from services.triton.embedded import EmbeddedTriton, disposable
from services.triton.load_test import latency, one_request, read_arrays
from services.triton.model_server import TritonServer
from services.triton.parity import Parity, compare, format_value, refuse_skewed
from services.triton.repository import SIGNATURE, ModelRepository, model_name
from services.triton.tensors import tensors
from shared.artifacts import FsspecArtifacts
from shared.contracts.plans import at_batch, batches
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Failure, File, Manifest, StageSpec
from shared.contracts.strict import read
from shared.domain.errors import BadData, Conflict, Invalid
from shared.domain.metric import count_of
from shared.ports import ServedUnit
from shared.serving.signature import Signature

CATALOGUE, PARITY = "catalogue.npz", "parity.npz"
_TIMEOUT = 60.0
log = logging.getLogger("eyas.stage")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m services.triton.verify")
    parser.add_argument("--spec", type=Path, required=True, help="the attempt's spec.json; its folder is the scratch folder")
    path: Path = parser.parse_args().spec.absolute()
    logging.basicConfig(stream=sys.stdout, format="verify: %(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is stopped
    try:
        code = attempt(path)
    except Invalid as error:
        log.error("refused: %s", error)
        code = 2
    except Exception as error:
        traceback.print_exc()
        sys.stderr.write(f"verify: failed: {type(error).__name__}: {' '.join(str(error).split()) or 'no message'}\n")
        code = 1
    sys.exit(code)


def attempt(path: Path) -> int:
    try:
        spec = read(StageSpec, json.loads(path.read_text()), path.name)
    except ValueError as error:
        raise Invalid(f"{path.name}: not JSON: {error}") from None
    if spec.stage != "verify":
        raise Invalid(f"{path.name}: it is for the stage '{spec.stage}', not 'verify'")
    store = FsspecArtifacts(spec.artifacts)
    if store.manifest(spec.attempt) is not None:
        log.info("attempt %s is published already; nothing to do", spec.attempt)
        return 0
    started = datetime.now(UTC)
    failure, metrics, facts = None, dict[str, float](), dict[str, Any]()
    try:
        metrics, facts = examine(spec, store, path.parent)
    except Invalid as error:
        failure = Failure(kind="data" if isinstance(error, BadData) else "spec", message=" ".join(str(error).split()))
        log.error("refused: %s", failure.message)
    ended = datetime.now(UTC)
    manifest = Manifest(
        stage="verify",
        run=spec.run,
        attempt=spec.attempt,
        started=started,
        ended=ended,
        metrics={"verify.stage_seconds": (ended - started).total_seconds()} | metrics,
        facts=facts,
        failure=failure,
    )
    try:
        store.publish(manifest)
    except Conflict as error:
        log.info("%s; this try's output is dropped", error)
    return 2 if failure else 0


def examine(spec: StageSpec, store: FsspecArtifacts, scratch: Path) -> tuple[dict[str, float], dict[str, Any]]:
    signature = _signature(store.read(_input(spec, SIGNATURE)))
    files = {name: _input(spec, name) for name in (*signature.files, SIGNATURE)}
    names = [model_input.name for model_input in signature.inputs] + [signature.output] + [feature.output for feature in signature.features]
    rows = read_arrays(store.fetch(_input(spec, PARITY), scratch / "inputs" / PARITY), names)
    items = [model_input.name for model_input in signature.side("item")]
    catalogue = read_arrays(store.fetch(_input(spec, CATALOGUE), scratch / "inputs" / CATALOGUE), items)

    triton = disposable(scratch / "triton")
    try:
        triton.start()
        server = TritonServer(triton, ModelRepository(triton.home, store), timeout=_TIMEOUT)
        try:
            info, before = server.info(), triton.memory()
            faults = server.place(spec.recommender.name, [ServedUnit(spec.recommender.name, 1, files)])
            if faults:
                raise BadData(f"{signature.file}: Triton can't serve it: {faults[1]}")
            parity = _parity(triton, spec.recommender.name, signature, rows)
            metrics, calls = _speed(server, spec.recommender, signature, catalogue, rows)
            metrics["size"] = sum(file.size for file in files.values()) / (1 << 20)
            memory = _memory(triton, signature, files) - before
            metrics |= {"parity": parity.difference, count_of("parity", "rows"): float(parity.rows)}
            metrics |= {"memory": memory / (1 << 20), "memory_server": before / (1 << 20)}
            log.info("memory: %.0f MiB more than the server's own %.0f MiB", metrics["memory"], metrics["memory_server"])
            log.info("size: %.1f MiB of files", metrics["size"])
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
        "libraries": {name: importlib.metadata.version(name) for name in ("numpy", "onnxruntime", "nvidia-pytriton")},
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
        parity = compare(
            lambda feed: client.outputs(model_name(recommender, signature), 1, tensors(signature, feed), outputs, _TIMEOUT), signature, rows
        )
    finally:
        client.close()
    refuse_skewed(parity)
    log.info("parity: %s rows, %d features equal, largest difference %.2g", f"{parity.rows:,}", len(signature.features), parity.difference)
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
        log.info("%s rows: p50 %.2f ms, p99 %.2f ms, %s rows/s", f"{size:,}", timing.p50, timing.p99, f"{timing.throughput:,.0f}")
        for name, value in (("latency_p50", timing.p50), ("latency_p99", timing.p99), ("throughput", timing.throughput)):
            metrics |= {at_batch(name, batch): value, count_of(at_batch(name, batch), "calls"): float(timing.calls)}
        calls[f"{size} rows"] = timing.calls
    return metrics, calls


def _input(spec: StageSpec, name: str) -> File:
    file = spec.inputs.get("export", {}).get(name)
    if file is None:
        raise Invalid(f"verify needs '{name}' of the stage export, which is not among its inputs")
    return file


def _signature(content: bytes) -> Signature:
    try:
        return read(Signature, json.loads(content), SIGNATURE)
    except ValueError as error:
        raise BadData(f"{SIGNATURE}: not JSON: {error}") from None


if __name__ == "__main__":
    main()
