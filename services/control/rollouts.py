"""Rollouts in the loop: what servers, gateways and users say of a candidate, and how its weight moves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from services.control.bases import spec_of
from services.control.placement import Placement
from services.control.reconcile import Simple
from shared.contracts.plans import rollout_plan
from shared.domain import rollout as domain
from shared.domain.errors import EyasError
from shared.domain.rollout import RolloutObservation, RolloutStatus, SetRoute
from shared.domain.route import Route
from shared.domain.verdict import Sample
from shared.ports import Clock, KpiSource, ModelServer, Record, RolloutStore, RouteStore
from shared.telemetry import metrics

GATEWAY_SILENCE = timedelta(seconds=3)
"""A gateway that hasn't reported for this long isn't ready and isn't waited for."""


class Rollouts(Simple[RolloutStatus, SetRoute]):
    """The Kind of rollouts."""

    machine = domain.MACHINE
    status_type: Any = RolloutStatus
    effect_type: Any = SetRoute

    def __init__(
        self, store: RolloutStore, routes: RouteStore, server: ModelServer, kpis: KpiSource, placement: Placement, clock: Clock
    ) -> None:
        self.store = store
        self._routes = routes
        self._server = server
        self._kpis = kpis
        self._placement = placement
        self._clock = clock

    def observe(self, record: Record[RolloutStatus]) -> RolloutObservation:
        version = int(record.spec["version"])
        route = self._routes.get(record.recommender)
        stable = None if route is None or route.stable == version else route.stable
        if record.status.state == "pending":
            return RolloutObservation(record.asked, blocked_by=self._blocked_by(record), stable=stable)
        answering = self._server.answering(record.recommender)
        routed = route is not None and route.candidate == version and self._is_reported(record.recommender, route)
        samples = None
        if routed and route is not None and record.status.state == "canary":
            samples = self._samples(record, route)
        return RolloutObservation(
            record.asked,
            stable=stable,
            answering=answering,
            load_error=self._placement.fault(record.recommender, version),
            routed=routed,
            samples=samples,
        )

    def decide(self, record: Record[RolloutStatus], seen: RolloutObservation, now: datetime) -> domain.RolloutDecision:
        return domain.decide(record.id, int(record.spec["version"]), record.status, seen, rollout_plan(spec_of(record)), now)

    def act(self, record: Record[RolloutStatus], following: RolloutStatus, effect: SetRoute) -> None:
        route = self._routes.put(record.recommender, effect.route, self._clock.now(), effect.actor, effect.reason, record)
        metrics.WEIGHT.labels(record.recommender).set(route.weight)
        metrics.SERVING.labels(record.recommender).set(route.stable)

    def committed(self, record: Record[RolloutStatus], following: RolloutStatus) -> None:
        if self.machine.terminal(following.state):
            metrics.ROLLOUTS.labels(record.recommender, following.state).inc()

    def _blocked_by(self, record: Record[RolloutStatus]) -> str | None:
        oldest = self.store.oldest_active(record.recommender)
        return None if oldest == record.id else oldest

    def _is_reported(self, recommender: str, route: Route) -> bool:
        """Every gateway that is alive serves this route."""
        reports = self._routes.reports(recommender, self._clock.now() - GATEWAY_SILENCE)
        return bool(reports) and all(generation >= route.generation for generation in reports.values())

    def _samples(self, record: Record[RolloutStatus], route: Route) -> tuple[Sample, Sample] | None:
        analysis = spec_of(record).rollout.analysis
        try:
            found = self._kpis.samples(record.recommender, route.generation, analysis.window, analysis.attribution, self._clock.now())
        except EyasError:
            return None
        return found.get("stable", Sample()), found.get("candidate", Sample())
