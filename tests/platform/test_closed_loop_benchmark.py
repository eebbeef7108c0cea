"""The benchmark of the closed loop, in a small size: its platform, its users and its report."""

from __future__ import annotations

from pathlib import Path

from benchmarks.closed_loop import apart, picture, rows_of
from benchmarks.loop_users import Scene


def test_a_platform_lives_two_simulated_days_and_learns_from_them(tmp_path: Path) -> None:
    scene = Scene(users=300, items=120, ratings=16000, visits=400, days=2, fashion=1, exchange=2)
    told = apart(scene, "daily", tmp_path / "home")
    assert [(one.answers, one.fallbacks) for one in told.days] == [(400, 0), (400, 0)]
    for one in told.days:
        assert 0 < one.low < one.rate < one.high < 1
        assert one.promised < one.oracle
    early, later = told.retrainings
    assert (early.at, early.trigger, early.version) == (0.125, "schedule", None)
    assert "a warm run needs 500" in early.rollout
    assert (later.trigger, later.mode, later.version) == ("schedule", "warm", 2)
    assert later.cpu > 0
    assert {row.contender for row in rows_of([told], scene)} == {"daily", "who knows the tastes"}
    assert "2 retrainings" in picture([told], scene)
    assert not (tmp_path / "home").exists()
