"""Signals for retraining: whether a serving version earns what it earned at first, and whether users still like the same items."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from services.monitor.drift import DriftLooks, MeasuredVersion
from services.monitor.features import ItemFeatures
from services.monitor.hits import Era, HitLooks
from shared.contracts.retraining import DriftTrigger, OnNewData, OnNewEvents, Trigger
from shared.contracts.spec import RecommenderSpec
from shared.domain.archive import DAY, start_of
from shared.domain.drift.reading import DriftLook
from shared.domain.errors import EyasError
from shared.ports import (
    Activity,
    ArtifactStore,
    Clock,
    DriftSamples,
    EventLog,
    NewestTimes,
    RecommenderStore,
    Registry,
    RouteStore,
    Signals,
)
from shared.telemetry import metrics
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

_COUNTED = 20_000
_GENERATIONS = 2_000
"""Newest generations of a route that are read: a rollout takes several."""
_COUNT_STANDS = timedelta(seconds=10)


class Monitor:
    """Implements SignalSource; `export` sets the gauges."""

    def __init__(
        self,
        recommenders: RecommenderStore,
        routes: RouteStore,
        registry: Registry,
        events: EventLog,
        sightings: DriftSamples,
        artifacts: ArtifactStore,
        clock: Clock,
        activity: Activity | None = None,
    ) -> None:
        """`activity` shows which recommenders have no news, so that nothing can have moved. None: all are checked."""
        self.activity = activity
        self._looked: dict[str, tuple[object, set[tuple[str, str, str]]]] = {}
        """Each recommender's state when its drift was exported, and the exported labels."""
        self._recommenders = recommenders
        self._routes = routes
        self._registry = registry
        self._events = events
        self._clock = clock
        self._counts: dict[str, tuple[tuple[datetime, int], datetime, int]] = {}
        self._drift = DriftLooks(sightings, ItemFeatures(registry, artifacts))
        self._hits = HitLooks(sightings, self._eras)
        self._drifts: set[tuple[str, str, str]] = set()
        self._outages = Outages(log)

    def signals(self, recommender: str) -> Signals:
        served = self._served(recommender)
        if served is None:
            return Signals()
        spec = self._recommenders.get(recommender).spec
        rule = spec.retrain.kpi
        kpi = self._hits.newest(served, rule, spec.rollout.analysis.attribution, self._clock.now()) if rule else None
        snapshot, events = self._arrived(recommender, spec, served.version)
        return Signals(self._look(served, spec), kpi, snapshot, events)

    def drift(self, recommender: str) -> DriftLook | None:
        """Returns the newest look; None while there are too few likes for two separate samples."""
        served = self._served(recommender)
        return None if served is None else self._look(served, self._recommenders.get(recommender).spec)

    def _look(self, served: MeasuredVersion, spec: RecommenderSpec) -> DriftLook | None:
        return self._drift.newest(self._with_kept_events(served, spec), spec.retrain.drift or DriftTrigger())

    def liked(self, recommender: str) -> tuple[int, int] | None:
        """Returns the likes since the version serves, and how many two windows need; None if these are too many to count."""
        served = self._served(recommender)
        rule = self._recommenders.get(recommender).spec.retrain.drift or DriftTrigger()
        wanted = 2 * rule.min_events
        if served is None:
            return 0, wanted
        return (self._drift.liked(served, wanted), wanted) if wanted <= _COUNTED else None

    def _with_kept_events(self, served: MeasuredVersion, spec: RecommenderSpec) -> MeasuredVersion:
        """Begins with the first whole day that the database keeps, if the version serves for longer."""
        oldest = start_of((self._clock.now() - spec.horizon("impressions")).date()) + DAY
        return replace(served, since=max(served.since, oldest))

    def _served(self, recommender: str) -> MeasuredVersion | None:
        route = self._routes.get(recommender)
        since = self._routes.serving_since(recommender, route.stable) if route else None
        return None if route is None or since is None else MeasuredVersion(recommender, route.stable, since)

    def _eras(self, recommender: str) -> Sequence[Era]:
        """Returns when each version was the stable one, the newest first. Ends at a retraining that a fallen hit rate caused: what that run
        couldn't win back, another run can't either."""
        eras: list[Era] = []
        for entry in self._routes.history(recommender, _GENERATIONS):
            version, since = entry.route.stable, entry.route.since
            assert since is not None  # set in every stored generation
            if eras and eras[-1].version == version and entry.until == eras[-1].since:
                eras[-1] = Era(version, since, eras[-1].until)
                continue
            if eras and (entry.until != eras[-1].since or self._answers_fall(recommender, eras[-1].version)):
                break
            eras.append(Era(version, since, entry.until))
        return eras

    def _answers_fall(self, recommender: str, version: int) -> bool:
        try:
            return self._registry.get(recommender, version).lineage.trigger == "kpi"
        except EyasError:
            return False

    def export(self) -> None:
        """Logs a recommender that can't be measured once, and goes on with the others."""
        drifts: set[tuple[str, str, str]] = set()
        routes, specs = self._routes.all(), self._recommenders.heads()
        newest: Mapping[str, NewestTimes] = self.activity.newest() if self.activity is not None else {}
        if self.activity is None:
            self._looked = {}
        elif not self._looked.keys() <= routes.keys():
            self._looked = {name: entry for name, entry in self._looked.items() if name in routes}
        for name, route in routes.items():
            previous, state = self._looked.get(name), (route.generation, specs.get(name), newest.get(name))
            if previous is not None and previous[0] == state:
                drifts |= previous[1]
                continue
            try:
                shown = self._export_drift(name)
                self._looked[name] = state, shown
                drifts |= shown
                self._outages.succeed(name, "drift: recovered recommender=%s", name)
            except Exception as error:
                self._outages.fail(name, "drift: measurement failed recommender=%s error=%s", name, error, error=error)
        for gone in self._drifts - drifts:  # a new version has no drift yet, and may have other features
            metrics.DRIFT.remove(*gone)
            metrics.DRIFT_CHANCE.remove(*gone)
        self._drifts = drifts

    def due(self) -> float | None:
        """Returns 0 to retry what failed. None: drift doesn't change with time alone."""
        return 0.0 if self._outages.open or self.activity is None else None

    def _export_drift(self, name: str) -> set[tuple[str, str, str]]:
        look = self.drift(name)
        shown = set()
        for reading in look.readings if look else ():
            labels = (name, reading.detector, reading.column)
            metrics.DRIFT.labels(*labels).set(reading.size)
            metrics.DRIFT_CHANCE.labels(*labels).set(reading.chance)
            shown.add(labels)
        return shown

    def _arrived(self, recommender: str, spec: RecommenderSpec, version: int) -> tuple[datetime, int | None]:
        """Returns when the version's data was cut, and how many events have come since. Caches the count, which takes a while."""
        snapshot = self._registry.get(recommender, version).lineage.snapshot
        wanted = max((_wanted(on) for on in spec.retrain.on), default=0)
        if not wanted:
            return snapshot, None
        now, question = self._clock.now(), (snapshot, wanted)
        counted_for, counted_at, count = self._counts.get(recommender, (None, now, 0))
        if counted_for != question or not timedelta(0) <= now - counted_at < _COUNT_STANDS:
            counted_at, count = now, self._events.count(recommender, snapshot, now, wanted)
            self._counts[recommender] = (question, counted_at, count)
        return snapshot, count


def _wanted(on: Trigger) -> int:
    """Returns how many new events must be counted for this trigger."""
    return on.new_events.count if isinstance(on, OnNewEvents) else int(isinstance(on, OnNewData))
