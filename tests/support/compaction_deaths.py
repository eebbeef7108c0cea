"""Compactions that die between two calls of their stores."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.domain.archive import start_of
from shared.testing.event_suite import ATTRIBUTION, did, shown
from tests.support.compaction import Place
from tests.support.simulated_platform import Death

FIRST = start_of(date(2026, 3, 16))
LAST = date(2026, 3, 20)


def day(n: float) -> datetime:
    return FIRST + timedelta(days=n)


def some(here: Place, *days: float) -> None:
    number = sum(here.days.counts("films", "impressions", day(99)).values())
    for n, at in enumerate(map(day, days), number):
        here.log.impressions([shown(f"q{n}", at, user=n)])
        here.log.interactions([did(10, at, user=n, value=n + 0.1, kind="rating")], [True], ATTRIBUTION)


class Mortal:
    """A store or an executor at whose n-th call the control plane dies: before the call, or after it."""

    def __init__(self, of: Any, fate: Fate) -> None:
        self._of = of
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            return found

        def call(*given: Any, **more: Any) -> Any:
            self._fate.reach()
            result = found(*given, **more)
            self._fate.reach()
            return result

        return call


class Fate:
    def __init__(self, at: int) -> None:
        self.left = at

    def reach(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Death


def is_finished_after_death(folder: Path, at: int) -> bool:
    """A compaction dies at its call of this number, and the next one finishes its work. False if it ended before the call."""
    place = Place(folder)
    some(place, 0.1, 0.2, 1.5)
    place.settle()
    some(place, 0.3, 2.5)
    fate = Fate(at)
    try:
        place.settle(place.compactor(Mortal(place.store, fate), Mortal(place.executor, fate)))
    except Death:
        assert place.read().equals(place.plain())
    place.settle()
    place.check(LAST)
    assert place.read().equals(place.plain())
    return fate.left <= 0
