"""The kill matrix: a seeded sample of it, and what the check is worth. `make crash` plays all of it.

Every transition of a run and of a rollout dies by a real SIGKILL at every point of it, and two replicas race to the end.
`EYAS_CRASH_SAMPLE` and `EYAS_CRASH_SEED` say how many cells and which; `EYAS_CRASH_SAMPLE=0` is all of them. The default
is about every place once, on a database and in a round that a fixed seed chooses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.domain.run import STAGES
from tests.crash.matrix.__main__ import SEED as DEFAULT_SEED
from tests.crash.matrix.__main__ import SUBJECTS

ROOT = Path(__file__).parents[2]
SAMPLE = int(os.environ.get("EYAS_CRASH_SAMPLE", "354"))
SEED = int(os.environ.get("EYAS_CRASH_SEED", "0")) or DEFAULT_SEED
AGAIN = f"EYAS_CRASH_SEED={SEED} EYAS_CRASH_SAMPLE={SAMPLE} .venv/bin/python -m pytest {Path(__file__).relative_to(ROOT)}"
Report = dict[str, dict[str, Any]]
MUTANTS = [(name, mutant) for name, subject in SUBJECTS.items() for mutant in subject.mutants]

pytestmark = pytest.mark.timeout(0)  # a cell that hangs is ended by its own world


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Report:
    """In a process of its own: it forks, and nothing else may live in what forks. Its progress is shown as it goes."""
    file = tmp_path_factory.mktemp("matrix") / "matrix.json"
    command = [sys.executable, "-m", "tests.crash.matrix", "--mutants", f"--sample={SAMPLE}", f"--seed={SEED}", f"--to={file}"]
    plugins = request.config.pluginmanager
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        terminal = plugins.getplugin("terminalreporter")
        terminal.write_line(f"\nkill matrix, a sample by seed {SEED}; the same again: {AGAIN}; all of it: make crash")
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
    assert file.exists(), f"the matrix came to no end: it exited with {status}"
    found: Report = json.loads(file.read_text())
    return found


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_after_a_kill_anywhere_two_racing_replicas_lose_nothing_and_double_nothing(report: Report, subject: str, backend: str) -> None:
    table = report[subject]["databases"][backend]
    assert [one for one in report[subject]["bad"] if one["cell"]["database"] == backend] == [], AGAIN
    assert table["kills"] == table["cells"] > 0
    assert (table["lost"], table["doubled"]) == (0, 0)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_as_many_jobs_really_began_as_there_are_stages(report: Report, backend: str) -> None:
    table = report["runs"]["databases"][backend]
    assert table["effects"] == table["stages"] > 0


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_traffic_changes_as_often_as_it_was_asked_for(report: Report, backend: str) -> None:
    table = report["rollouts"]["databases"][backend]
    assert table["changes"] == table["asked_for"] > 0
    assert table["put_again"] > 0, "no death was followed by a route that was there already"


@pytest.mark.parametrize(("subject", "mutant"), MUTANTS, ids=[f"{name} {mutant}" for name, mutant in MUTANTS])
def test_the_matrix_notices_each_safeguard_that_is_taken_away(report: Report, subject: str, mutant: str) -> None:
    found, its = report[subject]["mutants"][mutant], SUBJECTS[subject].mutants[mutant]
    assert found["undisturbed"] == [], "a life that nobody disturbs is none the worse"
    assert found["overlooked"] == [], f"{its.why}, and nobody noticed"
    assert found["noticed"] == found["cells"] >= len(its.places)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_matrix_takes_every_edge_of_the_machine(report: Report, subject: str) -> None:
    assert {(edge.source, edge.target) for edge in SUBJECTS[subject].machine.edges} - taken(report, subject) == set()


def test_the_matrix_tries_every_stage_again(report: Report) -> None:
    assert {(stage, stage) for stage in STAGES} <= taken(report, "runs")


def taken(report: Report, subject: str) -> set[tuple[str, str]]:
    ways = (move.partition(" (")[0].split(" -> ") for move in report[subject]["moves"])
    return {(source, target) for source, target in ways}
