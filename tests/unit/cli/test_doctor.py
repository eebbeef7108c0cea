"""`eyas doctor`: what a machine has and lacks."""

from __future__ import annotations

import json
import socket
from importlib.machinery import PathFinder
from types import SimpleNamespace

import pytest

from services.cli import doctor, doctor_checks
from services.cli.doctor_checks import CheckFinding


def no_process(*_, **__):
    raise OSError


@pytest.mark.requirement("C-09")
def test_a_machine_that_lacks_something_needed_ends_with_one_and_says_how_to_mend_it(eyas, monkeypatch):
    found = (
        CheckFinding("Triton", False, "not installed", "eyas install-triton"),
        CheckFinding("GPU", False, "none", "no need", needed=False),
    )
    monkeypatch.setattr(doctor, "examine", lambda home: found)
    result = eyas("doctor")
    assert result.exit_code == 1
    assert "eyas install-triton" in result.stdout
    assert "the platform cannot run here: fix the lines marked 'missing'" in result.stdout


def test_what_is_only_useful_does_not_end_with_one(eyas, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda home: (CheckFinding("GPU", False, "none", "no need", needed=False),))
    result = eyas("doctor", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["able"] is True


def test_this_machine_can_be_examined_and_nothing_is_made(eyas, home, monkeypatch):
    monkeypatch.setattr(doctor_checks, "find_spec", PathFinder.find_spec)  # a suite's rules refuse to look for a framework
    monkeypatch.setattr(doctor_checks.subprocess, "run", no_process)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: name)  # it starts ldconfig, for a Python of the system
    before = list(home.iterdir())
    found = json.loads(eyas("doctor", "--json").stdout)["findings"]
    assert {"Python", "memory", "disk", "home", "training", "PyTorch", "GPU", "uv"} <= {one["part"] for one in found}
    assert all(one["good"] or one["mend"] for one in found)
    assert list(home.iterdir()) == before


def test_the_gpus_are_those_that_nvidia_smi_lists(monkeypatch):
    monkeypatch.setattr(doctor_checks.shutil, "which", lambda name: f"/bin/{name}")
    listed = "GPU 0: NVIDIA H100 (UUID: GPU-0)\nGPU 1: NVIDIA H200 (UUID: GPU-1)\n"
    monkeypatch.setattr(doctor_checks.subprocess, "run", lambda command, **_: SimpleNamespace(stdout=listed))
    finding = doctor_checks.gpu()
    assert (finding.good, finding.needed, finding.detail) == (True, False, "NVIDIA H100, NVIDIA H200")
    monkeypatch.setattr(doctor_checks.subprocess, "run", no_process)
    assert (doctor_checks.gpu().good, doctor_checks.gpu().detail) == (False, "nvidia-smi does not answer")
    monkeypatch.setattr(doctor_checks.shutil, "which", lambda name: None)
    assert (doctor_checks.gpu().good, doctor_checks.gpu().needed, doctor_checks.gpu().detail) == (False, False, "none (no nvidia-smi)")


def test_a_home_that_cannot_be_written_is_found(tmp_path):
    (tmp_path / "file").write_text("")
    home, _ = doctor_checks.folder(tmp_path / "file" / "home")
    assert not home.good


def test_a_home_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path):
    home, disk = doctor_checks.folder(tmp_path / "a" / "b")
    assert home.good
    assert str(tmp_path) in disk.detail


def test_a_missing_extra_is_found_without_importing_it(monkeypatch):
    monkeypatch.setattr(doctor_checks, "find_spec", lambda name: None)
    assert "polars" in doctor_checks.pipelines().detail


def test_a_triton_that_is_not_installed_is_found_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("services.triton.wheel.ENVIRONMENT", tmp_path / "missing")
    finding = doctor_checks.triton()
    assert (finding.good, finding.detail, finding.mend) == (False, "the embedded Triton is not installed", "eyas install-triton")


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_without_a_framework_the_platform_runs_and_is_told_how_to_get_it(monkeypatch, name):
    monkeypatch.setattr(doctor_checks, "find_spec", lambda name: None)
    finding = doctor_checks.framework("A framework", name, "more")
    assert (finding.good, finding.needed, finding.detail) == (False, False, "not installed")
    assert f"pip install 'eyas[{name}]'" in finding.mend


def test_a_framework_that_was_built_here_has_no_version_and_is_there(monkeypatch, tmp_path):
    (tmp_path / "homebuilt.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = doctor_checks.framework("A framework", "homebuilt", "more")
    assert (finding.good, finding.detail) == (True, "unknown version")


def test_a_port_that_is_taken_is_said():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        finding = doctor_checks.port("API", other.getsockname()[1])
    assert (finding.good, finding.needed) == (False, False)
