"""The verify stage, run as the platform runs it: a process, a spec, a manifest."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from services.triton import verify
from shared.artifacts import FsspecArtifacts
from shared.contracts.gates import LatencyGate, MedianGate, MemoryGate, SizeGate, ThroughputGate
from shared.contracts.plans import gate_rule
from shared.contracts.stage import Files, Manifest, StageSpec
from shared.domain.gate import Verdict, judge
from shared.serving.signature import WEIGHTS
from shared.stage_process import Attempt
from shared.testing.executor_suite import small_spec, stage_spec
from shared.testing.model_server_suite import tiny_model, tiny_unit
from shared.testing.waiting import wait_for
from tests.servers.shared_memory import Owners
from tests.support import exported_units, external_weights
from tests.support.broken_models import not_a_number_of_real_items

ATTEMPT = "r1-verify-1"
ROWS = 600


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "attempt"
        self.folder.mkdir()
        self.store = FsspecArtifacts(str(folder / "artifacts"))
        self.gates: tuple[Any, ...] = ()

    def export(self, *, model: bytes | None = None, expected: Any = None) -> Files:
        user, item = np.arange(ROWS), np.arange(ROWS) % 7
        tags = np.full((ROWS, 2), "a")
        score = (user + 3.0 * item).astype(np.float32) if expected is None else expected
        files = dict(tiny_unit(self.store, "movies", 3, tags=True, model=model).files)
        catalogue, parity = self.folder / "catalogue.npz", self.folder / "parity.npz"
        np.savez(catalogue, item=np.arange(40), tags=np.full((40, 2), "b"))
        np.savez(parity, user=user, item=item, tags=tags, score=score)
        return files | {path.name: self.store.put(path) for path in (catalogue, parity)}

    def write_spec(self, files: Files) -> Path:
        recommender = small_spec().model_copy(update={"gates": self.gates}) if self.gates else small_spec()
        spec = stage_spec(ATTEMPT, "verify", self.store.url, inputs={"export": files}, recommender=recommender)
        path = self.folder / "spec.json"
        path.write_text(spec.model_dump_json(by_alias=True))
        return path

    def start(self, files: Files) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "services.triton.verify", "--spec", str(self.write_spec(files))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, files: Files) -> tuple[int, str, Manifest | None]:
        process = self.start(files)
        said, _ = process.communicate()
        assert not (self.folder / "triton").exists()
        return process.returncode, said, self.store.manifest(ATTEMPT)

    def run_here(self, files: Files) -> tuple[int, Manifest]:
        """In the test's process, which has imported everything already. The server is as real."""
        path = self.write_spec(files)
        spec = StageSpec.model_validate_json(path.read_text())
        code = verify.perform(Attempt(spec, path, self.store, logging.getLogger("eyas.stage")))
        assert not (self.folder / "triton").exists()
        manifest = self.store.manifest(ATTEMPT)
        assert manifest is not None
        return code, manifest


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.requirement("C-04", "T-13")
def test_a_good_unit_is_measured_on_a_real_server(stage: Stage) -> None:
    files = stage.export()
    code, said, manifest = stage.run(files)
    assert code == 0, said
    assert manifest is not None
    assert manifest.failure is None
    assert manifest.metrics["parity"] == 0
    assert 0 < manifest.metrics["latency_p50"] <= manifest.metrics["latency_p99"]
    assert manifest.metrics["throughput"] > 0
    assert manifest.metrics["memory"] > 10
    assert manifest.facts["parity_rows"] == ROWS
    assert manifest.facts["calls"] == {"40 rows": 200}
    assert stage.run(files)[0] == 0
    assert stage.store.manifest(ATTEMPT) == manifest


@pytest.mark.requirement("C-04")
def test_a_unit_that_answers_otherwise_than_in_training_shows_by_how_much(stage: Stage) -> None:
    expected = (np.arange(ROWS) + 3.0 * (np.arange(ROWS) % 7)).astype(np.float32)
    expected[ROWS - 1] += 0.5
    _, manifest = stage.run_here(stage.export(expected=expected))
    assert manifest.metrics["parity"] == pytest.approx(0.5)


@pytest.mark.requirement("C-04")
def test_each_gate_of_speed_and_memory_is_measured_at_its_own_batch(stage: Stage) -> None:
    stage.gates = (
        LatencyGate(latency_p99=timedelta(minutes=1), batch=20),
        MedianGate(latency_p50=timedelta(minutes=1)),
        ThroughputGate(throughput=1, batch=30),
        MemoryGate(memory=4 << 30),
        SizeGate(size=1 << 30),
    )
    files = stage.export()
    code, manifest = stage.run_here(files)
    assert code == 0, manifest.failure
    assert manifest.facts["calls"] == {"40 rows": 200, "20 rows": 200, "30 rows": 200}
    rules = [gate_rule(gate) for gate in stage.gates]
    assert [judge(rule, manifest.metrics, serving=False).verdict for rule in rules] == [Verdict.PASS] * 5
    assert manifest.metrics["size"] == sum(file.size for name, file in files.items() if name in ("model.onnx", "signature.json")) / 2**20
    assert 10 < manifest.metrics["memory"] < 1024
    impossible = [ThroughputGate(throughput=1e12, batch=30), MemoryGate(memory=1 << 20)]
    refused = [judge(gate_rule(gate), manifest.metrics, serving=False) for gate in impossible]
    assert [one.verdict for one in refused] == [Verdict.FAIL] * 2
    assert refused[1].reason == f"memory is {manifest.metrics['memory']:.4g} MiB > 1 MiB"


@pytest.mark.requirement("G-24")
def test_weights_beside_the_graph_count_in_size_and_memory_and_are_served(stage: Stage) -> None:
    files = stage.export() | dict(external_weights.unit(stage.store, "movies", 3, tags=True).files)
    code, manifest = stage.run_here(files)
    assert code == 0, manifest.failure
    assert manifest.metrics["parity"] == 0
    assert manifest.metrics["size"] == sum(files[name].size for name in ("model.onnx", "signature.json", WEIGHTS)) / 2**20


@pytest.mark.requirement("G-24")
def test_a_unit_that_takes_weights_from_elsewhere_is_refused_and_never_loaded(stage: Stage) -> None:
    files = stage.export() | dict(external_weights.unit(stage.store, "movies", 3, "/etc/passwd", tags=True).files)
    assert refused(stage, files).endswith("the graph reads weights from '/etc/passwd'; only weights.bin beside it is allowed")


@pytest.mark.requirement("C-04")
def test_a_unit_with_a_skewed_feature_is_refused_by_the_features_name(stage: Stage, tmp_path: Path) -> None:
    world = exported_units.small(tmp_path)
    model = world.train("popularity")
    files = world.export(stage.store, model, world.unit(model, exported_units.swapped, "genres"))
    message = refused(stage, files)
    assert "feature 'genres' differs in" in message
    assert message.endswith("the exported features differ from those of training")


def refused(stage: Stage, files: Files) -> str:
    code, manifest = stage.run_here(files)
    assert code == 2
    assert manifest.failure is not None
    return manifest.failure.message


def test_a_score_that_is_no_number_is_refused_and_named(stage: Stage) -> None:
    """By the process: it prints the reason, and no traceback."""
    code, said, manifest = stage.run(stage.export(model=tiny_model(float("nan"), tags=True)))
    assert (code, "Traceback" in said) == (2, False)
    assert manifest is not None
    assert manifest.failure is not None
    assert "is nan for a row of zeros" in manifest.failure.message
    assert manifest.failure.message in said


def test_a_score_that_is_no_number_for_real_rows_alone_is_refused_and_named(stage: Stage) -> None:
    assert "row 1: the served unit returned nan" in refused(stage, stage.export(model=not_a_number_of_real_items()))


def test_a_model_that_triton_cannot_load_is_refused_with_its_reason(stage: Stage) -> None:
    assert "model.onnx: Triton cannot serve it" in refused(stage, stage.export(model=b"no model"))


def test_an_export_without_parity_rows_is_refused(stage: Stage) -> None:
    files = stage.export()
    del files["parity.npz"]
    assert "parity.npz" in refused(stage, files)


def test_a_damaged_parity_file_is_refused(stage: Stage) -> None:
    files = stage.export()
    (stage.folder / "parity.npz").write_bytes(b"no archive")
    files["parity.npz"] = stage.store.put(stage.folder / "parity.npz")
    assert "parity.npz: cannot be read" in refused(stage, files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_verification_leaves_no_server(stage: Stage, number: signal.Signals) -> None:
    process = stage.start(stage.export())
    owners = Owners()
    owners.add(process.pid)
    server = wait_for(lambda: [one for one in psutil.Process(process.pid).children() if one.name() == "tritonserver"])[0]
    os.kill(process.pid, number)
    process.communicate()
    wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    assert stage.store.manifest(ATTEMPT) is None
    if number == signal.SIGTERM:
        assert owners.regions() == set(), "what a killed one leaves, the next start removes"
