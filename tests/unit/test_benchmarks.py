"""The benchmarks' own parts run: a small round of each that needs no server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

from benchmarks import control_loop, control_peer, drift, faults, filters
from benchmarks.drift_worlds import SHIFTS
from benchmarks.faults_world import slow
from benchmarks.rollout_load import Asked
from services.store.engine import sqlite_url


def test_a_round_of_trivial_runs_ends(tmp_path: Path) -> None:
    speed, held = control_peer._one_round(f"sqlite:///{tmp_path / 'trivial.db'}", 3)
    assert speed > 0
    assert held > 0


def test_transitions_and_delay_are_measured(tmp_path: Path) -> None:
    rows = control_loop.transitions("sqlite", f"sqlite:///{tmp_path / 'a.db'}", 3)
    rows += control_loop.delay("sqlite", f"sqlite:///{tmp_path / 'b.db'}", 3)
    assert all(value > 0 for row in rows for value in row.values if row.metric != "late")


def test_filters_and_upserts_are_measured(tmp_path: Path) -> None:
    writes = filters.catalogue(600)
    state, _, seconds = filters.ledger(writes)
    assert (len(state), seconds > 0) == (600, True)
    rows = [*filters.filtering(state, 600), *filters.upserts("sqlite", sqlite_url(tmp_path / "a.db"), writes)]
    assert all(value > 0 for row in rows for value in row.values)


def test_drift_is_found_where_it_was_planted_and_alone_there() -> None:
    stable = drift.stable_planted(1, 2, 3)
    assert stable.looks == 9
    assert "all" not in stable.alarms
    moved = drift.shifted_planted(2, replace(SHIFTS[0], genre=0.7), 3)
    missed, median, *_ = drift.delays("case", [moved], "psi", "eyas: psi", drift.WINDOW, "likes")
    assert list(missed.values) == [0]
    assert 0 < median.values[0] <= 2 * drift.WINDOW


def test_a_slow_version_passes_a_trial_and_takes_its_time_over_candidates() -> None:
    session = InferenceSession(slow(10), providers=["CPUExecutionProvider"])
    rows = np.arange(200)
    assert session.run(["score"], {"user": rows, "item": rows})[0].shape == (200,)


@pytest.mark.parametrize(
    ("failure", "version", "found"),
    [
        ("", 2, "its own"),
        ("", 1, "the version before"),
        ("200: scoring unavailable", 2, "scoring unavailable"),
        ("503: 'films' serves nothing yet", 0, "503"),
        ("TimeoutError: timed out", 0, "TimeoutError: timed out"),
    ],
)
def test_what_a_request_came_to_is_told_apart(failure: str, version: int, found: str) -> None:
    assert faults.kind(Asked(0.0, 0.1, version, "stable", failure), 2) == found
