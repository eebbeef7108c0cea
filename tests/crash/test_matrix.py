"""The kill matrix: a seeded sample of it, and what the check is worth. `make crash` plays all of it.

Every transition of a run dies by a real SIGKILL at every point of it, and two replicas race to the end. `EYAS_CRASH_SAMPLE` and
`EYAS_CRASH_SEED` say how many cells and which; `EYAS_CRASH_SAMPLE=0` is all of them. The default
is every place once on each database, in a round that the seed chooses.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.domain.run import MACHINE, STAGES
from tests.crash.matrix.mutants import PLACES, WHY
from tests.crash.matrix.plane import MUTANTS

ROOT = Path(__file__).parents[2]
SAMPLE = int(os.environ.get("EYAS_CRASH_SAMPLE", "354"))
SEED = int(os.environ.get("EYAS_CRASH_SEED", "0")) or secrets.randbelow(1_000_000)
AGAIN = f"EYAS_CRASH_SEED={SEED} EYAS_CRASH_SAMPLE={SAMPLE} .venv/bin/python -m pytest {Path(__file__).relative_to(ROOT)}"

pytestmark = pytest.mark.timeout(0)  # a cell that hangs is ended by its own world


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    """In a process of its own: it forks, and nothing else may live in what forks. Its progress is shown as it goes."""
    file = tmp_path_factory.mktemp("matrix") / "matrix.json"
    command = [sys.executable, "-m", "tests.crash.matrix", "--mutants", f"--sample={SAMPLE}", f"--seed={SEED}", f"--to={file}"]
    plugins = request.config.pluginmanager
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        terminal = plugins.getplugin("terminalreporter")
        terminal.write_line(f"\nkill matrix, a sample; the same again: {AGAIN}; all of it: make crash")
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
    assert file.exists(), f"the matrix came to no end: it exited with {status}"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_after_a_kill_anywhere_two_racing_replicas_lose_nothing_and_double_nothing(report: dict[str, Any], database: str) -> None:
    table = report["databases"][database]
    assert [one for one in report["bad"] if one["cell"]["database"] == database] == [], AGAIN
    assert table["kills"] == table["cells"] > 0
    assert (table["lost"], table["doubled"]) == (0, 0)
    assert table["effects"] == table["stages"] > 0


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_matrix_notices_each_safeguard_that_is_taken_away(report: dict[str, Any], mutant: str) -> None:
    found = report["mutants"][mutant]
    assert found["undisturbed"] == [], "a life that nobody disturbs is none the worse"
    assert found["overlooked"] == [], f"{WHY[mutant]}, and nobody noticed"
    assert found["noticed"] == found["cells"] >= len(PLACES[mutant])


def test_the_matrix_takes_every_edge_of_the_machine_and_every_stage_again(report: dict[str, Any]) -> None:
    taken = {tuple(move.partition(" (")[0].split(" -> ")) for move in report["moves"]}
    assert {(edge.source, edge.target) for edge in MACHINE.edges} <= taken
    assert {(stage, stage) for stage in STAGES} <= taken
