"""Keeps the snapshot equal to the routes, and reports the served generations to the control plane.

A pass without changes has constant cost: the stores then return the same objects.

Order: load a version, swap the snapshot, report the generation. So a rollout's weight never rises before this gateway can answer with
the candidate. While the store is away, the last snapshot stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from services.gateway.filtering import Filter
from services.gateway.loaded_version import LoadedVersion, load_unit
from services.gateway.rules import Ordering
from services.gateway.snapshot import ServedRecommender, Snapshot
from shared.domain.entity_ids import IdHash
from shared.domain.errors import EyasError
from shared.domain.route import Route
from shared.ports import ArtifactStore, Clock, Indexes, RecommenderStore, Registry, RouteStore
from shared.telemetry import metrics

log = logging.getLogger(__name__)

HEARTBEAT = timedelta(milliseconds=500)
_STORE = "*"  # a fault of the control plane concerns all recommenders


class Loader:
    def __init__(
        self,
        routes: RouteStore,
        registry: Registry,
        artifacts: ArtifactStore,
        recommenders: RecommenderStore,
        clock: Clock,
        id: str,
        indexes: Indexes,
        ids: IdHash,
    ) -> None:
        self._ids = ids
        self._routes = routes
        self._registry = registry
        self._artifacts = artifacts
        self._recommenders = recommenders
        self._clock = clock
        self._id = id
        self._indexes = indexes
        self._reported: tuple[datetime, Mapping[str, int]] | None = None
        self._followed: tuple[Mapping[str, Route], Mapping[str, int]] | None = None
        """Routes and spec generations that the snapshot follows."""
        self._generations: Mapping[str, int] = {}
        self._faults: dict[str, str] = {}
        self._lock = threading.Lock()
        self.snapshot = Snapshot()

    def units(self, name: str) -> Sequence[LoadedVersion]:
        """Returns the recommender's served versions."""
        served = self.snapshot.served.get(name)
        return list(served.units.values()) if served else []

    def fault(self, name: str) -> str | None:
        """Returns why the recommender's route cannot be served; None if it can."""
        return self._faults.get(name)

    def refresh(self) -> None:
        """Makes one pass. Never raises: a fault is logged once, and the last snapshot stays."""
        with self._lock:
            try:
                self._pass(self._clock.now())
                self._healed(_STORE)
            except Exception as error:
                self._fault(_STORE, "last", error)

    def beat(self) -> None:
        """Reports the heartbeat between passes; does nothing while the store has a fault."""
        now = self._clock.now()
        with self._lock:
            if self._reported is None or now - self._reported[0] < HEARTBEAT or _STORE in self._faults:
                return
            try:
                self._report(now)
            except Exception as error:
                self._fault(_STORE, "last", error)

    def due(self) -> float | None:
        """Seconds until a pass has work although nothing has changed; None if never."""
        if _STORE in self._faults:
            return 0.0
        return HEARTBEAT.total_seconds() if self._faults else None

    def _pass(self, now: datetime) -> None:
        """Follows routes and specs; retries versions that failed to load at each heartbeat, not at each pass."""
        routes, specs = self._routes.all(), self._recommenders.heads()
        due = self._reported is None or now - self._reported[0] >= HEARTBEAT
        followed = self._followed
        if followed is None or followed[0] is not routes or followed[1] is not specs or (due and self._faults):
            self.snapshot = self._following(routes, specs, now)
            self._followed = routes, specs
            generations = self.snapshot.generations()
            self._generations = self._generations if generations == self._generations else generations
        if due or self._reported is None or self._reported[1] is not self._generations:
            self._report(now)

    def _report(self, now: datetime) -> None:
        same = self._reported is not None and self._reported[1] is self._generations
        if not (same and self._routes.heard(self._id, now)):
            self._routes.report(self._id, self._generations, now)
        self._reported = (now, self._generations)

    def _following(self, routes: Mapping[str, Route], specs: Mapping[str, int], now: datetime) -> Snapshot:
        """Returns the next snapshot; a recommender whose new route cannot be served keeps its former route."""
        served: dict[str, ServedRecommender] = {}
        for name, route in routes.items():
            former = self.snapshot.served.get(name)
            try:
                served[name] = self._load(name, route, specs.get(name, 0), former)
                self._healed(name)
            except Exception as error:
                self._fault(name, former.route.generation if former else "none", error)
                if former is not None:
                    served[name] = former
        return replace(self.snapshot, served=served, read_at=now)

    def _load(self, name: str, route: Route, generation: int, former: ServedRecommender | None) -> ServedRecommender:
        if former is not None and (former.route, former.spec) == (route, generation):
            return former
        stored = self._recommenders.get(name)
        spec = stored.spec
        serve, slices = spec.serve, spec.monitor.compiled()
        same = former is not None and (former.filter.serve, former.slices) == (serve, slices)
        loaded = dict(former.units) if former else {}
        units = {
            number: loaded.get(number) or load_unit(self._registry.get(name, number), self._artifacts, self._indexes)
            for number in sorted(route.named())
        }
        for number in units:  # starts at 0: a rate misses the first error of a series that starts with it
            metrics.REQUESTS.labels(name, str(number), "candidate" if number == route.candidate else "stable", "error")
        if former is not None and same:
            return replace(former, route=route, units=units, spec=stored.generation)
        return ServedRecommender(route, units, Filter(serve), Ordering(serve.order, self._ids), slices, stored.generation, stored.ids)

    def _fault(self, subject: str, generation: int | str, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"
        if self._faults.get(subject) != message:
            self._faults[subject] = message
            ids = (self._id, subject, generation)
            cause = None if isinstance(error, EyasError) else error
            log.error("route: loading failed gateway=%s recommender=%s generation_in_use=%s error=%s", *ids, message, exc_info=cause)

    def _healed(self, subject: str) -> None:
        if self._faults.pop(subject, None) is not None:
            log.info("route: loading recovered gateway=%s recommender=%s", self._id, subject)
