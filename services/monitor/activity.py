"""Which recommenders are used, asked for all of them at once: who looks at each of many asks first whether there is anything to see."""

from __future__ import annotations

import time
from collections.abc import Mapping

from shared.ports import Newest, RouteStore, Sightings

FRESH = 1.0
"""Seconds that an answer stands."""


class Sighted:
    """Implements Activity."""

    def __init__(self, routes: RouteStore, sightings: Sightings, fresh: float = FRESH) -> None:
        self._routes = routes
        self._sightings = sightings
        self._fresh = fresh
        self._known: tuple[float, Mapping[str, Newest]] | None = None

    def newest(self) -> Mapping[str, Newest]:
        known, now = self._known, time.monotonic()
        if known is None or now - known[0] >= self._fresh:
            found = self._sightings.newest({name: route.stable for name, route in self._routes.all().items()})
            if known is not None and known[1] == found:
                found = known[1]
            self._known = known = now, found
        return known[1]
