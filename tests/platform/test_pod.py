"""`python -m shared.pod`: how a stage begins inside a pod."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import File

STAGE = "import sys, os, pathlib; path = pathlib.Path(sys.argv[2]); print(path.read_text(), path, os.getcwd()); sys.exit(3)"


@pytest.fixture
def store(tmp_path: Path) -> FsspecArtifacts:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "tiny.py").write_text(STAGE)
    (tmp_path / "scratch").mkdir()
    return FsspecArtifacts(str(tmp_path / "artifacts"))


def launch(folder: Path, store: FsspecArtifacts, spec: str, module: str = "tiny") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "shared.pod", "--module", module, "--artifacts", store.url, "--spec", spec]
    path = f"{Path(__file__).parents[2]}:{folder / 'modules'}"
    return subprocess.run(
        [*command, "--scratch", str(folder / "scratch")], capture_output=True, text=True, env={"PYTHONPATH": path}, check=False
    )


def put(folder: Path, store: FsspecArtifacts) -> File:
    (folder / "spec.json").write_text(json.dumps({"stage": "etl"}))
    return store.put(folder / "spec.json")


def test_it_fetches_the_spec_and_becomes_the_stage(tmp_path: Path, store: FsspecArtifacts) -> None:
    file = put(tmp_path, store)
    found = launch(tmp_path, store, f"{file.sha256}:{file.size}")
    assert found.returncode == 3, found.stderr
    assert found.stdout == f'{{"stage": "etl"}} {tmp_path}/scratch/spec.json {tmp_path}/scratch\n'


def test_a_spec_that_is_not_there_or_is_another_is_refused_in_one_line(tmp_path: Path, store: FsspecArtifacts) -> None:
    file = put(tmp_path, store)
    for spec, said in ((f"{'0' * 64}:1", "is not in"), ("nonsense", "sha256")):
        found = launch(tmp_path, store, spec)
        assert found.returncode == 1
        assert said in found.stderr
        assert found.stderr.count("\n") == 1
    blob = tmp_path / "artifacts" / "blobs" / file.sha256[:2] / file.sha256
    blob.chmod(0o644)
    blob.write_text("tampered with")
    found = launch(tmp_path, store, f"{file.sha256}:{file.size}")
    assert (found.returncode, "damaged" in found.stderr) == (1, True)


@pytest.mark.parametrize("module", ["../tiny", "tiny;x", "", "-c"])
def test_only_a_modules_name_is_a_module(tmp_path: Path, store: FsspecArtifacts, module: str) -> None:
    file = put(tmp_path, store)
    assert launch(tmp_path, store, f"{file.sha256}:{file.size}", module).returncode == 2
