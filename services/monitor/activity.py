"""Activity of all recommenders in one query, so that callers can skip recommenders without news."""

from __future__ import annotations

import time
from collections.abc import Mapping

from shared.ports import DriftSamples, NewestTimes, RouteStore

FRESH = 1.0
"""Seconds that a result stays valid."""


class DriftActivity:
    """Implements Activity."""

    def __init__(self, routes: RouteStore, sightings: DriftSamples, fresh: float = FRESH) -> None:
        self._routes = routes
        self._sightings = sightings
        self._fresh = fresh
        self._cached: tuple[float, Mapping[str, NewestTimes]] | None = None

    def newest(self) -> Mapping[str, NewestTimes]:
        cached, now = self._cached, time.monotonic()
        if cached is None or now - cached[0] >= self._fresh:
            newest = self._sightings.newest({name: route.stable for name, route in self._routes.all().items()})
            if cached is not None and cached[1] == newest:
                newest = cached[1]
            self._cached = cached = now, newest
        return cached[1]
