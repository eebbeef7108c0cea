"""What is known of a serving version: does it earn what it earned at first, and do users still like the same things?"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from services.monitor.drift import DriftLooks, HitLooks, Served
from services.monitor.features import ItemFeatures
from shared.contracts.retraining import DriftTrigger, KpiTrigger, OnDrift, OnKpi, OnNewData, OnNewEvents, Trigger
from shared.contracts.spec import RecommenderSpec
from shared.domain.drift.reading import Look
from shared.domain.errors import EyasError
from shared.ports import (
    ArtifactStore,
    Clock,
    EventLog,
    HitRate,
    KpiSource,
    RecommenderStore,
    Registry,
    RouteStore,
    Sightings,
    Signals,
)
from shared.telemetry import metrics

log = logging.getLogger(__name__)

_SHOWN = timedelta(minutes=5)
"""How much of the newest time the exported hit rate covers where the spec has no trigger that says so."""

_COUNT_STANDS = timedelta(seconds=10)


class Monitor:
    """Implements SignalSource; `export` keeps the gauges."""

    def __init__(
        self,
        recommenders: RecommenderStore,
        routes: RouteStore,
        registry: Registry,
        kpis: KpiSource,
        events: EventLog,
        sightings: Sightings,
        artifacts: ArtifactStore,
        clock: Clock,
    ) -> None:
        self._recommenders = recommenders
        self._routes = routes
        self._registry = registry
        self._kpis = kpis
        self._events = events
        self._clock = clock
        self._counts: dict[str, tuple[tuple[datetime, int], datetime, int]] = {}
        self._drift = DriftLooks(sightings, ItemFeatures(registry, artifacts))
        self._hits = HitLooks(sightings)
        self._shown: set[tuple[str, str]] = set()
        self._drifts: set[tuple[str, str, str]] = set()
        self._failing: set[str] = set()

    def signals(self, recommender: str) -> Signals:
        served = self._served(recommender)
        if served is None:
            return Signals()
        spec = self._recommenders.get(recommender).spec
        rule = _kpi_rule(spec)
        kpi = self._hits.newest(served, rule, spec.rollout.analysis.attribution, self._clock.now()) if rule else None
        snapshot, events = self._arrived(recommender, spec, served.version)
        return Signals(self.drift(recommender), kpi, snapshot, events)

    def drift(self, recommender: str) -> Look | None:
        """The newest look; None while there are too few likes for two separate samples."""
        served = self._served(recommender)
        if served is None:
            return None
        rule = next((on.drift for on in self._recommenders.get(recommender).spec.retrain.on if isinstance(on, OnDrift)), DriftTrigger())
        return self._drift.newest(served, rule)

    def _served(self, recommender: str) -> Served | None:
        route = self._routes.get(recommender)
        since = self._routes.serving_since(recommender, route.stable) if route else None
        return None if route is None or since is None else Served(recommender, route.stable, since)

    def kpis(self, recommender: str, window: timedelta) -> Mapping[int, HitRate]:
        """Hit rate of each version that answered in the newest closed stretch of time."""
        attribution = self._recommenders.get(recommender).spec.rollout.analysis.attribution
        until = self._clock.now() - attribution
        found = {
            version.number: self._kpis.hit_rate(recommender, version.number, until - window, until, attribution)
            for version in self._registry.list(recommender)
        }
        return {number: rate for number, rate in found.items() if rate.answers}

    def export(self) -> None:
        """A recommender that can't be measured is said once, and doesn't stop the others."""
        shown: set[tuple[str, str]] = set()
        drifts: set[tuple[str, str, str]] = set()
        for name in self._routes.all():
            try:
                shown |= self._export(name)
                drifts |= self._export_drift(name)
                self._failing.discard(name)
            except Exception as error:
                if name not in self._failing:
                    self._failing.add(name)
                    log.error("the hit rate of '%s': %s", name, error, exc_info=None if isinstance(error, EyasError) else error)
        for labels in self._shown - shown:  # a version that no longer answers has no hit rate, least of all its last one
            metrics.HIT_RATE.remove(*labels)
            metrics.ANSWERS.remove(*labels)
        for gone in self._drifts - drifts:  # a new version begins anew, and may have other features
            metrics.DRIFT.remove(*gone)
            metrics.DRIFT_CHANCE.remove(*gone)
        self._shown, self._drifts = shown, drifts

    def _export_drift(self, name: str) -> set[tuple[str, str, str]]:
        look = self.drift(name)
        shown = set()
        for one in look.readings if look else ():
            labels = (name, one.detector, one.column)
            metrics.DRIFT.labels(*labels).set(one.size)
            metrics.DRIFT_CHANCE.labels(*labels).set(one.chance)
            shown.add(labels)
        return shown

    def _export(self, name: str) -> set[tuple[str, str]]:
        """Sets the gauges of one recommender; gives the labels that it set."""
        shown: set[tuple[str, str]] = set()
        rule = _kpi_rule(self._recommenders.get(name).spec)
        for number, rate in self.kpis(name, rule.window if rule else _SHOWN).items():
            labels = (name, str(number))
            metrics.HIT_RATE.labels(*labels).set(rate.rate)
            metrics.ANSWERS.labels(*labels).set(rate.answers)
            shown.add(labels)
        return shown

    def _arrived(self, recommender: str, spec: RecommenderSpec, version: int) -> tuple[datetime | None, int | None]:
        """When the version's data was cut, and how many events have come since. Counting takes a while, so that a count stands for one."""
        cut = self._registry.get(recommender, version).lineage.get("snapshot")
        snapshot = datetime.fromisoformat(cut) if isinstance(cut, str) else None
        wanted = max((_wanted(on) for on in spec.retrain.on), default=0)
        if snapshot is None or not wanted:
            return snapshot, None
        now, question = self._clock.now(), (snapshot, wanted)
        asked, counted_at, count = self._counts.get(recommender, (None, now, 0))
        if asked != question or not timedelta(0) <= now - counted_at < _COUNT_STANDS:
            counted_at, count = now, self._events.count(recommender, snapshot, now, wanted)
            self._counts[recommender] = (question, counted_at, count)
        return snapshot, count


def _wanted(on: Trigger) -> int:
    """How far this trigger needs new events counted."""
    return on.new_events.count if isinstance(on, OnNewEvents) else int(isinstance(on, OnNewData))


def _kpi_rule(spec: RecommenderSpec) -> KpiTrigger | None:
    return next((on.kpi for on in spec.retrain.on if isinstance(on, OnKpi)), None)
