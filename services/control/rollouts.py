"""Rollouts in the control loop: observe servers, gateways and users of a candidate, and move its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from services.control.placement import Placement
from services.control.reconcile import Simple
from shared.contracts.plans import rollout_plan
from shared.domain import rollout as domain
from shared.domain.errors import EyasError
from shared.domain.rollout import RolloutObservation, RolloutStatus, SetRoute
from shared.domain.rollout_plan import RolloutPlan
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.domain.step_analysis import StepLook
from shared.domain.traffic import Traffic
from shared.ports import Clock, KpiSource, ModelServer, Registry, RolloutRecord, RolloutStore, RouteStore, ShadowTotals
from shared.run_factory import proven, spec_of
from shared.telemetry import metrics

GATEWAY_SILENCE = timedelta(seconds=3)
"""A gateway without a report for this long isn't ready, and no step waits for it."""
BASE = timedelta(days=1)
"""Past of the stable version from which its expected hit rate is estimated."""


@dataclass(frozen=True)
class Sources:
    """Sources of a candidate's KPIs and of its shadow totals."""

    kpis: KpiSource
    mirrors: ShadowTotals


class VersionLoad(Protocol):
    """Loads what was published with a version, such as features into the feature store."""

    def loaded(self, recommender: str, version: int) -> bool: ...

    def fault(self, recommender: str, version: int) -> str | None:
        """Returns why the version can't be loaded; None if no load has failed."""


class Rollouts(Simple[RolloutStatus, SetRoute]):
    """Kind of rollouts."""

    machine = domain.MACHINE
    status_type: Any = RolloutStatus
    effect_type: Any = SetRoute

    def __init__(
        self,
        store: RolloutStore,
        routes: RouteStore,
        registry: Registry,
        server: ModelServer,
        sources: Sources,
        placement: Placement,
        clock: Clock,
        loads: Sequence[VersionLoad] = (),
    ) -> None:
        """A version gets no traffic before all `loads` have loaded it."""
        self.store = store
        self._loads = tuple(loads)
        self._routes = routes
        self._registry = registry
        self._server = server
        self._sources = sources
        self._placement = placement
        self._clock = clock

    def observe(self, record: RolloutRecord) -> RolloutObservation:
        version, state = record.spec.version, record.status.state
        route = self._routes.get(record.recommender)
        serves = route is not None and route.stable == version
        stable = None if route is None or serves else route.stable
        if state == "pending":
            return RolloutObservation(record.request, blocked_by=self._blocked_by(record), stable=stable)
        answering = self._server.answering(record.recommender)
        named = route.named() if route is not None else frozenset()
        if version not in named and not all(load.loaded(record.recommender, version) for load in self._loads):
            answering -= {version}
        first = route is None and version in answering
        observation = RolloutObservation(
            record.request,
            stable=stable,
            serves=serves,
            answering=answering,
            load_error=self._fault(record.recommender, version),
            proven=not first or self._is_proven(record.recommender, version),
        )
        if route is None or state not in ("shadow", "canary"):
            return observation
        return self._at_a_step(record, observation, route)

    def decide(self, record: RolloutRecord, observation: RolloutObservation, now: datetime) -> domain.RolloutDecision:
        return domain.decide(record.id, record.spec.version, record.status, observation, _plan(record), now)

    def act(self, record: RolloutRecord, following: RolloutStatus, effect: SetRoute) -> None:
        self._routes.put(record.recommender, effect.route, self._clock.now(), effect.actor, effect.reason, record)

    def committed(self, record: RolloutRecord, following: RolloutStatus) -> None:
        if self.machine.terminal(following.state):
            metrics.ROLLOUTS.labels(record.recommender, following.state).inc()

    def _fault(self, recommender: str, version: int) -> str | None:
        """Returns why the version will never answer."""
        faults = (load.fault(recommender, version) for load in self._loads)
        return self._placement.fault(recommender, version) or next((fault for fault in faults if fault), None)

    def _blocked_by(self, record: RolloutRecord) -> str | None:
        oldest = self.store.oldest_active(record.recommender)
        return None if oldest == record.id else oldest

    def _is_proven(self, recommender: str, version: int) -> bool:
        return proven(self._registry.get(recommender, version))

    def _at_a_step(self, record: RolloutRecord, observation: RolloutObservation, route: Route) -> RolloutObservation:
        """Asks gateways until the step has begun; reads the data only when a look is due."""
        status = record.status
        at = (route.candidate, route.salt, route.step, route.shadow)
        if at != (record.spec.version, record.id, status.step, status.state == "shadow"):
            return replace(observation, ours=False)
        if status.step_since is None:
            missing = self._missing(record.recommender, route)
            base = self._base(record, route) if not missing and status.base_of != status.step else None
            return replace(observation, routed=not missing, missing=missing, base=base)
        if not domain.due(status, _plan(record), self._clock.now()):
            return observation
        return replace(observation, look=self._look(record, route))

    def _missing(self, recommender: str, route: Route) -> str:
        """Names the live gateways that don't serve this route yet."""
        reports = self._routes.reports(recommender, self._clock.now() - GATEWAY_SILENCE)
        behind = {gateway: served for gateway, served in reports.items() if served < route.generation}
        if not reports:
            return f"no gateway has reported in the last {GATEWAY_SILENCE.seconds} s"
        return ", ".join(
            f"gateway {gateway} serves generation {served} of {route.generation}" for gateway, served in sorted(behind.items())
        )

    def _base(self, record: RolloutRecord, route: Route) -> float | None:
        """Returns the stable version's hit rate before this route was set; None if unknown."""
        attribution = spec_of(record).rollout.analysis.attribution
        assert route.since is not None
        until = route.since - attribution
        try:
            serving = self._routes.serving_since(record.recommender, route.stable)
            since = max(serving or until - BASE, until - BASE)
            hit_rate = self._sources.kpis.hit_rate(record.recommender, route.stable, since, until, attribution)
        except EyasError:
            return None
        return hit_rate.rate if hit_rate.hits else None

    def _look(self, record: RolloutRecord, route: Route) -> StepLook:
        analysis, now = spec_of(record).rollout.analysis, self._clock.now()
        under = record.recommender, route.generation
        try:
            if route.shadow:
                return StepLook(mirror=self._sources.mirrors.total(*under))
            users = self._sources.kpis.samples(*under, analysis.window, analysis.attribution, now)
            answers = self._sources.kpis.traffic(*under, now)
        except EyasError as error:
            return StepLook(fault=str(error))
        return StepLook(
            (users.get("stable", VariantSample()), users.get("candidate", VariantSample())),
            (answers.get("stable", Traffic()), answers.get("candidate", Traffic())),
        )


def _plan(record: RolloutRecord) -> RolloutPlan:
    return rollout_plan(spec_of(record), record.spec.back)
