"""`make setup`, `make setup-torch` and `make setup-jax`, with tools that only write down their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "uv"):
        tool = tmp_path / ".venv/bin" / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >> asked\n')
        tool.chmod(0o755)
    return tmp_path


def _asked(clone: Path, target: str) -> list[str]:
    """What the environment was asked meanwhile."""
    (clone / "asked").write_text("")
    subprocess.run(["make", target, f"PYTHON={sys.executable}"], cwd=clone, check=True, capture_output=True, timeout=60)
    return [" ".join(line.split()[:3]) + " " + line.split()[-1] for line in (clone / "asked").read_text().splitlines()]


def _later(path: Path, than: Path) -> None:
    time = than.stat().st_mtime + 10
    os.utime(path, (time, time))


def test_a_newcomers_setup_has_no_pytorch(clone: Path) -> None:
    assert not any("torch" in one for one in _asked(clone, "setup"))


def test_an_environment_that_is_made_anew_keeps_pytorch(clone: Path) -> None:
    torch = ["python -m pip torch==2.13.0", "python -m pip torchrec==1.8.0"]
    assert _asked(clone, "setup-torch")[-2:] == torch
    assert "--no-deps cloudpickle==3.1.2 fbgemm-gpu-cpu==1.8.0" in (clone / "asked").read_text(), "its pins would take numpy 2"
    assert _asked(clone, "setup-torch") == []
    _later(clone / "requirements.lock", than=clone / ".venv/.ready")
    asked = _asked(clone, "setup")
    assert asked[0] == "uv pip sync requirements.lock"
    assert asked[-2:] == torch


def test_the_version_stands_in_one_place(clone: Path) -> None:
    project = clone / "pyproject.toml"
    project.write_text(project.read_text().replace("torch==2.13.0", "torch==9.9"))
    assert _asked(clone, "setup-torch")[-2] == "python -m pip torch==9.9"


def test_jax_is_set_up_likewise(clone: Path) -> None:
    assert not any("jax" in one for one in _asked(clone, "setup"))
    assert _asked(clone, "setup-jax")[-1] == "python -m pip jaxlib==0.6.2"
    assert "jax==0.6.2 jaxlib==0.6.2" in (clone / "asked").read_text()
    assert _asked(clone, "setup-jax") == []
    _later(clone / "requirements.lock", than=clone / ".venv/.ready")
    assert _asked(clone, "setup")[-1] == "python -m pip jaxlib==0.6.2"
