"""`shared.pod`: fetches the spec of a stage and becomes the stage. As a process: tests/platform/test_pod.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared import pod
from shared.artifacts import FsspecArtifacts

Launch = Callable[..., list[str]]


@pytest.fixture
def store(tmp_path: Path) -> FsspecArtifacts:
    return FsspecArtifacts(str(tmp_path / "artifacts"))


@pytest.fixture
def launch(tmp_path: Path, store: FsspecArtifacts, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """The command that a pod becomes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    executed: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda program, command: executed.append(command))

    def run(spec: str, module: str = "pipelines.stages.etl") -> list[str]:
        words = ["--module", module, "--artifacts", store.url, "--spec", spec, "--scratch", str(tmp_path / "scratch")]
        monkeypatch.setattr("sys.argv", ["pod", *words])
        pod.main()
        return executed.pop()

    return run


def test_it_becomes_the_stage_in_its_folder(tmp_path: Path, store: FsspecArtifacts, launch: Launch) -> None:
    (tmp_path / "spec.json").write_text('{"stage": "etl"}')
    file = store.put(tmp_path / "spec.json")
    spec = tmp_path / "scratch" / "spec.json"
    assert launch(f"{file.sha256}:{file.size}") == [sys.executable, "-P", "-m", "pipelines.stages.etl", "--spec", str(spec)]
    assert spec.read_text() == '{"stage": "etl"}'
    assert Path.cwd() == tmp_path / "scratch"


def test_a_missing_or_invalid_spec_is_an_error_in_one_line(launch: Launch) -> None:
    for spec, said in ((f"{'0' * 64}:1", "is not in"), ("nonsense", "sha256")):
        with pytest.raises(SystemExit, match=f"^pod: the stage's spec cannot be fetched: .*{said}.*$") as caught:
            launch(spec)
        assert "\n" not in str(caught.value)


def test_only_a_modules_name_is_a_module(launch: Launch, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests) -> None:
    for module in ("../tiny", "tiny;x", "", "-c", "a.b.", "a b"):
        with subtests.test(module=module):
            with pytest.raises(SystemExit) as caught:
                launch(f"{'0' * 64}:1", module)
            assert caught.value.code == 2
            assert "--module" in capsys.readouterr().err
