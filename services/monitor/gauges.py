"""Gauges of what versions earn. Labels are bounded: versions that answered lately, the variants, and the slices of the spec."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from prometheus_client import Gauge

from services.monitor.earnings import Earning, Earnings, ItemSpread, VersionEarning
from shared.domain.route import Route
from shared.domain.slices import KNOWN, NEW
from shared.ports import Activity, Clock, NewestTimes, RecommenderStore, RouteStore
from shared.telemetry import metrics
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

SHOWN = timedelta(minutes=5)
"""Window of the gauges if the spec has no KPI trigger, whose window counts otherwise."""
PLACES = 20
"""Places with a gauge of their click rate."""
SPREAD_EVERY = timedelta(seconds=30)
"""Interval of coverage and novelty, which read impressions row by row."""
_NOTHING = NewestTimes(None, None)

Values = Mapping[Gauge, dict[tuple[str, ...], float]]
_RATES: Mapping[Gauge, Callable[[Earning], float]] = {
    metrics.HIT_RATE: lambda earning: earning.earned.hit_rate,
    metrics.ANSWERS: lambda earning: earning.earned.answers,
    metrics.CONVERSION: lambda earning: earning.earned.conversion,
    metrics.REVENUE: lambda earning: earning.earned.revenue_per_answer,
    metrics.ENGAGEMENT: lambda earning: earning.engagement,
}
_OF_VARIANTS: Mapping[Gauge, Callable[[Earning], float]] = {
    metrics.VARIANT_HIT_RATE: lambda earning: earning.earned.hit_rate,
    metrics.VARIANT_ANSWERS: lambda earning: earning.earned.answers,
}
_OF_SLICES: Mapping[Gauge, Callable[[Earning], float]] = {
    metrics.SLICE_HIT_RATE: lambda earning: earning.earned.hit_rate,
    metrics.SLICE_ANSWERS: lambda earning: earning.earned.answers,
    metrics.SLICE_CONVERSION: lambda earning: earning.earned.conversion,
}
_ALL = (*_RATES, *_OF_VARIANTS, *_OF_SLICES, metrics.CLICKS, metrics.COVERAGE, metrics.NOVELTY)


class EarningsGauges:
    def __init__(
        self, recommenders: RecommenderStore, routes: RouteStore, earnings: Earnings, clock: Clock, activity: Activity | None = None
    ) -> None:
        """`activity` shows which recommenders can have earned nothing. None: all are measured."""
        self._recommenders = recommenders
        self._routes = routes
        self._earnings = earnings
        self._clock = clock
        self._shown: dict[Gauge, set[tuple[str, ...]]] = {}
        self._spreads: dict[str, tuple[datetime, Mapping[int, ItemSpread]]] = {}
        self._activity = activity
        self._spans: dict[str, tuple[int, timedelta]] = {}
        """Generation of the spec, and how far back its measurements reach."""
        self._outages = Outages(log)
        self._moving = True

    def due(self) -> float | None:
        """Returns 0 after recent use: recent earnings change with time. None: no recommender was used lately."""
        return 0.0 if self._moving else None

    def export(self) -> None:
        """Logs a recommender that can't be measured once, and goes on with the others."""
        values: Values = {gauge: {} for gauge in _ALL}
        specs = self._recommenders.heads()
        newest = self._activity.newest() if self._activity is not None else {}
        now = self._clock.now()
        self._moving = False
        for name, route in self._routes.all().items():
            if self._activity is not None and self._rests(name, route, specs.get(name, 0), newest.get(name, _NOTHING), now):
                continue
            self._moving = True
            try:
                self._measure(name, values)
                self._outages.succeed(name, "kpi gauges: recovered recommender=%s", name)
            except Exception as error:
                self._outages.fail(name, "kpi gauges: update failed recommender=%s error=%s", name, error, error=error)
        for gauge, series in values.items():
            for labels, value in series.items():
                gauge.labels(*labels).set(value)
            # A version that no longer answers must not keep its last values.
            for labels in self._shown.get(gauge, set()) - series.keys():
                gauge.remove(*labels)
            self._shown[gauge] = set(series)

    def _rests(self, name: str, route: Route, generation: int, newest: NewestTimes, now: datetime) -> bool:
        """Returns whether no version of the route has answered within the time that the gauges cover."""
        span = self._spans.get(name)
        if span is None or span[0] != generation or route.candidate is not None or route.since is None:
            return False
        since = now - span[1]
        return route.since < since and (newest.answer is None or newest.answer < since)

    def _measure(self, name: str, values: Values) -> None:
        stored = self._recommenders.get(name)
        spec = stored.spec
        rule, now = spec.retrain.kpi, self._clock.now()
        self._spans[name] = stored.generation, (rule.window if rule else SHOWN) + spec.rollout.analysis.attribution
        cached = self._spreads.get(name)
        anew = cached is None or now - cached[0] >= SPREAD_EVERY
        earnings = self._earnings.of(name, rule.window if rule else SHOWN, anew)
        if anew or cached is None:
            cached = self._spreads[name] = (now, {number: earning.spread for number, earning in earnings.items()})
        declared = {*spec.monitor.slices, NEW, KNOWN}
        for number, earning in earnings.items():
            _note(values, (name, str(number)), earning, cached[1].get(number, ItemSpread()), declared)


def _note(values: Values, labels: tuple[str, ...], earning: VersionEarning, spread: ItemSpread, declared: set[str]) -> None:
    _rates(values, _RATES, labels, earning)
    for variant, part in earning.variants.items():
        _rates(values, _OF_VARIANTS, (*labels, variant), part)
    for slice_, part in earning.slices.items():
        if slice_ in declared:
            _rates(values, _OF_SLICES, (*labels, slice_), part)
    for place, clicked in earning.earned.click_rates().items():
        if place < PLACES:
            values[metrics.CLICKS][*labels, str(place + 1)] = clicked
    for gauge, value in ((metrics.COVERAGE, spread.coverage), (metrics.NOVELTY, spread.novelty)):
        if value is not None:
            values[gauge][labels] = value


def _rates(values: Values, rates: Mapping[Gauge, Callable[[Earning], float]], labels: tuple[str, ...], earning: Earning) -> None:
    for gauge, rate in rates.items():
        values[gauge][labels] = rate(earning)
