"""`make setup` and its additions, with tools that only write down their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "services/triton/environment.lock")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", *LOCKS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "uv", "eyas"):
        tool = tmp_path / ".venv/bin" / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >> commands\n')
        tool.chmod(0o755)
    return tmp_path


def commands(clone: Path, target: str) -> list[str]:
    """Returns the first three words and the last word of each command that a target runs."""
    (clone / "commands").write_text("")
    subprocess.run(["make", target, f"PYTHON={sys.executable}"], cwd=clone, check=True, capture_output=True, timeout=60)
    return [" ".join(line.split()[:3]) + " " + line.split()[-1] for line in (clone / "commands").read_text().splitlines()]


def touch_after(path: Path, marker: Path) -> None:
    time = marker.stat().st_mtime + 10
    os.utime(path, (time, time))


def test_the_demos_setup_installs_its_own_lock_and_a_triton(clone: Path) -> None:
    assert commands(clone, "setup") == ["uv pip sync requirements.lock", "uv pip install client", "eyas install-triton install-triton"]
    assert commands(clone, "setup") == []


def test_the_tests_setup_adds_to_it(clone: Path) -> None:
    commands(clone, "setup")
    assert commands(clone, "setup-dev") == ["uv pip install requirements-dev.lock"]
    assert commands(clone, "setup-dev") == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_new_lock_keeps_what_was_added(clone: Path, lock: str) -> None:
    torch = ["python -m pip torch==2.13.0", "python -m pip typing-inspect==0.9.0", "python -W ignore torchrec"]
    assert commands(clone, "setup-torch")[-3:] == torch
    assert "--no-deps cloudpickle==3.1.3 fbgemm-gpu-cpu==1.8.0" in (clone / "commands").read_text(), "their pins would take CUDA"
    assert commands(clone, "setup-torch") == []
    touch_after(clone / lock, marker=clone / ".venv/.ready")
    again = commands(clone, "setup")
    assert again[0] == "uv pip sync requirements-dev.lock"
    assert again[-3:] == torch


def test_the_version_stands_in_one_place(clone: Path) -> None:
    project = clone / "pyproject.toml"
    project.write_text(project.read_text().replace("torch==2.13.0", "torch==9.9"))
    assert commands(clone, "setup-torch")[-3] == "python -m pip torch==9.9"


def test_jax_is_set_up_likewise(clone: Path) -> None:
    assert commands(clone, "setup-jax")[-1] == "python -m pip jaxlib==0.10.2"
    assert "jax==0.10.2 jaxlib==0.10.2" in (clone / "commands").read_text()
    assert commands(clone, "setup-jax") == []
    touch_after(clone / "requirements.lock", marker=clone / ".venv/.ready")
    assert commands(clone, "setup")[-1] == "python -m pip jaxlib==0.10.2"
