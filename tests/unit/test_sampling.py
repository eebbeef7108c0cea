"""A sample is a share, the same for an equal seed; without it everything is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MATRIX = """
import pytest
@pytest.mark.matrix(0.25)
@pytest.mark.parametrize("case", range(40))
def test_a_case(case): pass
@pytest.mark.matrix(0.25)
@pytest.mark.parametrize("case", range(2))
def test_one_of_few(case): pass
def test_beside(seldom): assert len(seldom(range(100), 0.1)) == SHARE
"""


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    suite = tmp_path / "tests/console"
    suite.mkdir(parents=True)
    for name in ("one", "two", "three", "four"):
        (suite / f"test_{name}.py").write_text("def test_this(): pass\ndef test_that(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    matrix(share)\n")
    (tmp_path / "test_matrix.py").write_text(MATRIX.replace("SHARE", "10"))
    (tmp_path / "test_whole.py").write_text(MATRIX.replace("SHARE", "100"))
    return tmp_path


def run(folder: Path, *options: str) -> tuple[list[str], str]:
    """The cases that passed, and everything that was said."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "tests.sampling", "--rootdir", str(folder), "-c", str(folder / "pytest.ini")]
    done = subprocess.run(
        [*command, *options], cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall(r"(?:^|PASSED \S* ?)(test_\w+\.py::[^ \n]+)", done.stdout, re.MULTILINE)), done.stdout


def test_a_share_is_run_and_told_and_its_seed_makes_the_same_again(matrix: Path) -> None:
    ran, said = run(matrix, "test_matrix.py", "--sample")
    assert len([case for case in ran if "test_a_case" in case]) == 10
    assert len([case for case in ran if "test_one_of_few" in case]) == 1
    assert "31 deselected" in said
    seed = re.search(r"--sample-seed=(\d+)", said)
    assert seed is not None
    assert run(matrix, "test_matrix.py", seed[0])[0] == ran
    assert run(matrix, "test_matrix.py", f"--sample-seed={int(seed[1]) + 1}")[0] != ran


def test_of_a_suite_a_share_of_the_files_is_run(matrix: Path) -> None:
    _, said = run(matrix, "tests", "--sample", "--import-mode=importlib")
    assert "4 passed, 4 deselected" in said


def test_the_whole_is_everything(matrix: Path) -> None:
    ran, said = run(matrix, "test_whole.py")
    assert len(ran) == 43
    assert "deselected" not in said
    assert "--sample-seed" not in said
