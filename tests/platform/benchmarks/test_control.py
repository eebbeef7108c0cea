"""A small round of each benchmark of the control plane and its stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks import (
    control_loop,
    control_peer,
    drift,
    filters,
    kpis,
)
from benchmarks.events_days import days_of_events
from benchmarks.populations import SHIFTS
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from tests.support.compaction import SPEC


def test_a_round_of_trivial_runs_ends(tmp_path: Path) -> None:
    speed, memory = control_peer.run_ours(f"sqlite:///{tmp_path / 'trivial.db'}", 3)
    assert speed > 0
    assert memory > 0


def test_transitions_and_delay_are_measured(tmp_path: Path) -> None:
    rows = [*control_loop.transitions("sqlite", f"sqlite:///{tmp_path / 'a.db'}", 3)]
    rows += control_loop.delay("sqlite", f"sqlite:///{tmp_path / 'b.db'}", 3)
    assert all(value > 0 for row in rows for value in row.values if row.metric != "late")


def test_filters_and_upserts_are_measured(tmp_path: Path) -> None:
    writes = filters.catalogue(600)
    state, _, seconds = filters.ledger(writes)
    assert (len(state), seconds > 0) == (600, True)
    rows = [*filters.filtering(state, 600), *filters.upserts("sqlite", sqlite_url(tmp_path / "a.db"), writes)]
    assert all(value > 0 for row in rows for value in row.values)


def test_a_compaction_is_measured_and_changes_nothing_that_etl_reads(tmp_path: Path) -> None:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    upgrade(engine)
    rows = {(row.contender, row.metric): row.values for row in days_of_events(tmp_path, engine, SPEC, 3_000)}
    engine.dispose()
    assert rows["eyas: Parquet by day", "rows that etl reads differently"] == [0]
    assert rows["eyas: Parquet by day", "interactions"][0] < rows["eyas: CSV, as before", "interactions"][0]


def test_what_questions_of_kpis_cost_is_measured(tmp_path: Path) -> None:
    engine = open_engine(sqlite_url(tmp_path / "a.db"))
    upgrade(engine)
    kpis.fill(engine, 2_000)
    rows = list(kpis.measured(engine, "SQLite", 2_000))
    assert len(rows) == 16
    assert all(value > 0 for row in rows if row.metric == "clock" for value in row.values)
    engine.dispose()


def test_drift_is_found_where_it_was_planted_and_alone_there() -> None:
    stable = drift.stable_planted(2, 1)
    assert stable.looks == 9
    assert "all" not in stable.alarms
    moved = drift.shifted_planted(replace(SHIFTS[0], genre=0.7), 2)
    missed, median, *_ = drift.delays("case", [moved], "psi", drift.WINDOW, "likes")
    assert list(missed.values) == [0]
    assert 0 < median.values[0] <= 2 * drift.WINDOW
