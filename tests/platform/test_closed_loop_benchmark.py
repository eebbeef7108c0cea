"""The benchmark of the closed loop, in a small size: its platform, its users and its report."""

from __future__ import annotations

from pathlib import Path

from benchmarks.closed_loop import in_process, rows_of
from benchmarks.populations import Scene


def test_a_platform_lives_two_simulated_days_and_learns_from_them(tmp_path: Path) -> None:
    scene = Scene(users=300, items=120, ratings=16000, visits=400, days=2, fashion=1, exchange=2)
    month = in_process(scene, "daily", tmp_path / "home")
    assert [(day.answers, day.fallbacks) for day in month.days] == [(400, 0), (400, 0)]
    for day in month.days:
        assert 0 < day.low < day.rate < day.high < 1
        assert day.promised < day.oracle
    early, later = month.retrainings
    assert (early.at, early.trigger, early.version) == (0.125, "schedule", None)
    assert "a warm run needs 500" in early.rollout
    assert (later.trigger, later.mode, later.version) == ("schedule", "warm", 2)
    assert later.cpu > 0
    assert {row.contender for row in rows_of([month], scene)} == {"daily", "who knows the tastes"}
    assert not (tmp_path / "home").exists()
