"""What each version's answers earned lately: hits, conversions, revenue, engagement, clicks by place; for people and as gauges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client import Gauge

from shared.domain.earned import Earned
from shared.domain.errors import EyasError
from shared.ports import Clock, KpiSource, RecommenderStore, Registry, RouteStore
from shared.telemetry import metrics

log = logging.getLogger(__name__)

SHOWN = timedelta(minutes=5)
"""How much of the newest time the gauges cover where the spec has no trigger on the hit rate that says so."""
PLACES = 20
"""Of which the gauges say how often they are clicked."""


@dataclass(frozen=True)
class Earning:
    earned: Earned
    engagement: float
    """Weights of all positives, per answer."""


class Earnings:
    def __init__(self, recommenders: RecommenderStore, routes: RouteStore, registry: Registry, kpis: KpiSource, clock: Clock) -> None:
        self._recommenders = recommenders
        self._routes = routes
        self._registry = registry
        self._kpis = kpis
        self._clock = clock
        self._shown: dict[Gauge, set[tuple[str, ...]]] = {}
        self._failing: set[str] = set()

    def of(self, recommender: str, window: timedelta) -> Mapping[int, Earning]:
        """By version that answered in the newest closed stretch of time."""
        spec = self._recommenders.get(recommender).spec
        attribution, conversions, weights = spec.rollout.analysis.attribution, spec.feedback.conversions(), spec.feedback.weights()
        until = self._clock.now() - attribution
        found = {
            version.number: self._kpis.earned(recommender, version.number, until - window, until, attribution, conversions)
            for version in self._registry.list(recommender)
        }
        return {number: Earning(one, one.engagement(weights)) for number, one in found.items() if one.answers}

    def export(self) -> None:
        """A recommender that can't be measured is said once, and doesn't stop the others."""
        values: dict[Gauge, dict[tuple[str, ...], float]] = {gauge: {} for gauge in (*_RATES, metrics.CLICKS)}
        for name in self._routes.all():
            try:
                rule = self._recommenders.get(name).spec.retrain.kpi
                for number, one in self.of(name, rule.window if rule else SHOWN).items():
                    _note(values, (name, str(number)), one)
                self._failing.discard(name)
            except Exception as error:
                if name not in self._failing:
                    self._failing.add(name)
                    log.error("what '%s' earns: %s", name, error, exc_info=None if isinstance(error, EyasError) else error)
        for gauge, found in values.items():
            for labels, value in found.items():
                gauge.labels(*labels).set(value)
            # A version that no longer answers earns nothing, least of all what it earned last.
            for labels in self._shown.get(gauge, set()) - found.keys():
                gauge.remove(*labels)
            self._shown[gauge] = set(found)


_RATES: Mapping[Gauge, Callable[[Earning], float]] = {
    metrics.HIT_RATE: lambda one: one.earned.hit_rate,
    metrics.ANSWERS: lambda one: one.earned.answers,
    metrics.CONVERSION: lambda one: one.earned.conversion,
    metrics.REVENUE: lambda one: one.earned.revenue_per_answer,
    metrics.ENGAGEMENT: lambda one: one.engagement,
}


def _note(values: Mapping[Gauge, dict[tuple[str, ...], float]], labels: tuple[str, ...], one: Earning) -> None:
    for gauge, rate in _RATES.items():
        values[gauge][labels] = rate(one)
    for place, clicked in one.earned.click_rates().items():
        if place < PLACES:
            values[metrics.CLICKS][*labels, str(place + 1)] = clicked
