"""The closed-loop benchmark: its simulated users, and recovery after a shift."""

from __future__ import annotations

import pytest

from benchmarks import closed_loop
from benchmarks.closed_loop import Day, Month
from benchmarks.populations import Scene, crowds
from benchmarks.trials import interval


def test_a_day_of_the_closed_loop_is_the_same_for_every_arm_down_to_its_luck() -> None:
    scene = Scene(users=30, items=40, visits=60, organic=3)
    ((_, first), *_), ((_, again), *_) = crowds(scene), crowds(scene)
    assert sorted(first.users[:30]) == sorted(first.users[30:]) == list(range(1, 31))
    shown = scene.worlds()[0].item_ids[:5].tolist()
    for visit in range(60):
        assert first.clicked(visit, shown) == again.clicked(visit, shown)
        assert set(first.clicked(visit, shown[:2])) == set(first.clicked(visit, shown)) & set(shown[:2])
        assert first.picked(visit)[0].tolist() == again.picked(visit)[0].tolist()
        assert 0 < first.promise(visit, shown) < 1
    best = [scene.worlds()[0].best(user, 5).tolist() for user in first.users]
    assert first.oracle() == pytest.approx(sum(first.promise(visit, items) for visit, items in enumerate(best)) / 60)


def test_recovery_counts_whole_days_within_a_phase() -> None:
    scene = Scene(days=6, fashion=2, exchange=4)
    rates = (80, 80, 40, 70, 30, 50)
    days = tuple(Day(day, 100, hits, *interval(hits, 100), hits / 100, 0.9, 0) for day, hits in enumerate(rates))
    month = Month(1, "daily", days, (), 0.0, (), 0.0, 0.0)
    assert [mean for mean, _ in closed_loop.phases(month, scene)] == [0.8, 0.55, 0.4]
    assert closed_loop.recovery(month, scene, 2, 0.7) == 1
    assert closed_loop.recovery(month, scene, 2, 0.4) == 0
    assert closed_loop.recovery(month, scene, 4, 0.7) is None
    low, high = interval(30, 100)
    assert (round(low, 3), round(high, 3)) == (0.219, 0.396)
