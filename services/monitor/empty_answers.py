"""Share of answers without items because the filters left none, by recommender: a gauge, and one warning when it begins and ends."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.domain.route import Route
from shared.ports import Activity, Clock, EmptyAnswers, KpiSource, NewestTimes, RecommenderStore, RouteStore
from shared.telemetry import metrics
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

WINDOW = timedelta(minutes=15)
LEAST = 20
"""Fewer answers in the window have no share."""
EVERY = timedelta(seconds=30)


@dataclass(frozen=True)
class EmptyAnswersLook:
    counts: EmptyAnswers
    limit: float
    """Largest share that the spec allows."""

    @property
    def share(self) -> float | None:
        return self.counts.empty / self.counts.answers if self.counts.answers >= LEAST else None

    @property
    def exceeds(self) -> bool:
        return self.share is not None and self.share > self.limit


class EmptyAnswersMonitor:
    """Every control plane exports the gauges; one at a time calls `warn`."""

    def __init__(self, recommenders: RecommenderStore, routes: RouteStore, kpis: KpiSource, clock: Clock, activity: Activity) -> None:
        self._recommenders = recommenders
        self._routes = routes
        self._kpis = kpis
        self._clock = clock
        self._activity = activity
        self._looks: dict[str, EmptyAnswersLook] = {}
        self._looked_at: datetime | None = None
        self._faults = Outages(log)
        self._warnings = Outages(log)

    def of(self, recommender: str) -> EmptyAnswersLook:
        """Counts the answers of the last `WINDOW`."""
        limit = self._recommenders.get(recommender).spec.monitor.empty_answers
        route, now = self._routes.get(recommender), self._clock.now()
        counts = EmptyAnswers(0, 0) if route is None else self._kpis.empty(recommender, route.named(), now - WINDOW, now)
        return EmptyAnswersLook(counts, limit)

    def due(self) -> float | None:
        """Returns the seconds until the next look while there are recent answers: they leave the window with time."""
        return EVERY.total_seconds() if any(look.counts.answers for look in self._looks.values()) else None

    def export(self) -> None:
        """Looks at every recommender with recent answers, at most once per `EVERY`."""
        now = self._clock.now()
        if self._looked_at is not None and now - self._looked_at < EVERY:
            return
        self._looked_at = now
        newest, looks = self._activity.newest(), dict[str, EmptyAnswersLook]()
        for name, route in self._routes.all().items():
            if self._rests(name, route, newest.get(name), now):
                continue
            try:
                looks[name] = self.of(name)
                self._faults.succeed(name, "empty answers: recovered recommender=%s", name)
            except Exception as error:
                self._faults.fail(name, "empty answers: counting failed recommender=%s error=%s", name, error, error=error)
        shares = {name: look.share for name, look in looks.items() if look.share is not None}
        for name in [name for name, look in self._looks.items() if look.share is not None and name not in shares]:
            metrics.EMPTY_ANSWERS.remove(name)
            metrics.EMPTY_ANSWERS_LIMIT.remove(name)
        for name, share in shares.items():
            metrics.EMPTY_ANSWERS.labels(name).set(share)
            metrics.EMPTY_ANSWERS_LIMIT.labels(name).set(looks[name].limit)
        self._looks = looks

    def warn(self) -> None:
        """Logs where the newest looks exceed their limit for the first time, and where they no longer do."""
        for name, look in self._looks.items():
            share, counts = look.share, look.counts
            if share is not None and look.exceeds:
                message = "empty answers: filters leave no item too often recommender=%s share=%.3f limit=%.3f answers=%d window=%s"
                self._warnings.fail(name, message, name, share, look.limit, counts.answers, WINDOW, level=logging.WARNING)
            elif share is not None:
                self._warnings.succeed(name, "empty answers: ended recommender=%s share=%.3f answers=%d", name, share, counts.answers)

    def _rests(self, name: str, route: Route, newest: NewestTimes | None, now: datetime) -> bool:
        """Returns whether no version of the route has answered within the window."""
        look = self._looks.get(name)
        if route.candidate is not None or (look is not None and look.counts.answers):
            return False
        return newest is None or newest.answer is None or newest.answer < now - WINDOW
