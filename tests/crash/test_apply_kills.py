"""kill -9 of the process that answers an apply, at each of its points: the client sends it again, and one run exists per generation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.apply_kills import CASES, RETRIES, Verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1200)
@pytest.mark.requirement("C-01")
def test_an_apply_that_is_killed_anywhere_and_sent_again_stores_one_run_per_generation(database_url: str) -> None:
    """On the database of `--database`. The same cells lose a run or store two where a mutant of the store is used."""
    command = [sys.executable, "-m", "tests.support.apply_kills", database_url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = [Verdict(**fields) for fields in json.loads(done.stdout)]
    ours = [verdict for verdict in verdicts if not verdict.mutant]
    assert [verdict for verdict in ours if verdict.lost or verdict.doubled or verdict.wrong] == []
    for case in CASES:
        for retry in RETRIES:
            points = {verdict.point for verdict in ours if (verdict.case, verdict.retry) == (case, retry)}
            tables = {"audit", "stored_responses", "recommender_history", "change_counters"} | (
                {"resources"} if case != "without a run" else set()
            )
            assert tables <= {point.split()[-1] for point in points}
            ends = {f"{when} COMMIT {table}" for when in ("before", "after") for table in ("audit", "stored_responses", "change_counters")}
            assert ends <= points
    lost = [verdict for verdict in verdicts if verdict.mutant == "two transactions" and verdict.lost]
    assert {verdict.retry for verdict in lost} == set(RETRIES), (
        "the run is lost when the process dies between spec and run, and nobody noticed"
    )
    assert {"after COMMIT change_counters", "before INSERT resources", "before COMMIT history"} <= {verdict.point for verdict in lost}
    doubled = [verdict for verdict in verdicts if verdict.mutant == "run for an equal spec" and verdict.doubled]
    assert {verdict.retry for verdict in doubled} == {"no key"}, "an equal spec starts a second run, and nobody noticed"
