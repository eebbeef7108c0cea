"""The verify stage: proves a served unit on a disposable Triton, never on the one that serves.

    python -m services.triton.verify --spec spec.json

Like every stage it reads spec.json and publishes one manifest. Exit 0: published. Exit 2: the unit can't be used; the manifest says
why, and trying again can't help. Exit 1: anything else; nothing was published.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.triton.embedded import disposable
from services.triton.examination import latency, one_request, parity, read_arrays
from services.triton.model_server import TritonServer
from services.triton.repository import MODEL, SIGNATURE, ModelRepository
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import LatencyGate, RecommenderSpec
from shared.contracts.stage import Failure, File, Manifest, StageSpec
from shared.contracts.strict import read
from shared.domain.errors import BadData, Conflict, Invalid
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is stopped on the way out
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
    recommender = spec.recommender
    files = {name: _input(spec, name) for name in (MODEL, SIGNATURE, CATALOGUE, PARITY)}
    signature = _signature(store.read(files[SIGNATURE]))
    names = [one.name for one in signature.inputs]
    rows = read_arrays(store.fetch(files[PARITY], scratch / "inputs" / PARITY), [*names, signature.output])
    items = [one.name for one in signature.side("item")]
    catalogue = read_arrays(store.fetch(files[CATALOGUE], scratch / "inputs" / CATALOGUE), items)
    expected = rows.pop(signature.output)
    batch = _batch(recommender, len(catalogue[signature.item]))

    triton = disposable(scratch / "triton")
    try:
        triton.start()
        server = TritonServer(triton, ModelRepository(triton.home, store), timeout=_TIMEOUT)
        try:
            faults = server.place(recommender.name, [ServedUnit(recommender.name, 1, files)])
            if faults:
                raise BadData(f"{MODEL}: Triton can't serve it: {faults[1]}")
            difference = parity(server, recommender.name, 1, rows, expected)
            log.info("parity: %s rows, largest difference %.2g", f"{len(expected):,}", difference)
            found = latency(server, recommender.name, 1, one_request(signature, catalogue, rows, batch), batch)
            log.info("latency of %s rows: p50 %.2f ms, p99 %.2f ms", f"{batch:,}", found.p50, found.p99)
            metrics = {
                "parity": difference,
                "latency_p50": found.p50,
                "latency_p99": found.p99,
                "throughput": found.throughput,
                "memory": triton.memory() / (1 << 20),
            }
            facts = {
                "triton": server.info().version,
                "batch": batch,
                "calls": found.calls,
                "parity_rows": len(expected),
                "libraries": {name: importlib.metadata.version(name) for name in ("numpy", "onnxruntime", "nvidia-pytriton")},
            }
        finally:
            server.close()
    finally:
        triton.stop(grace=0)  # nothing is under way: no reason to be polite
        shutil.rmtree(triton.home, ignore_errors=True)
    return metrics, facts


def _input(spec: StageSpec, name: str) -> File:
    found = spec.inputs.get("export", {}).get(name)
    if found is None:
        raise Invalid(f"verify needs '{name}' of the stage export, which is not among its inputs")
    return found


def _signature(content: bytes) -> Signature:
    try:
        return read(Signature, json.loads(content), SIGNATURE)
    except ValueError as error:
        raise BadData(f"{SIGNATURE}: not JSON: {error}") from None


def _batch(spec: RecommenderSpec, catalogue: int) -> int:
    """The rows of the call that the latency gate is about; the whole catalogue where it names none."""
    gates = [gate for gate in spec.gates if isinstance(gate, LatencyGate)]
    return max((gate.batch or catalogue for gate in gates), default=catalogue)


if __name__ == "__main__":
    main()
