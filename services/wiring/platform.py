"""Builds the parts of one process by its role: control loops, API parts and gateway."""

from __future__ import annotations

import functools
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from services.api.credentials import Credentials
from services.api.dependencies import AuthConfig, ControlParts, Features
from services.api.rate_limits import RateLimit, RateLimits
from services.control.admission import AdmissionLease, Admissions
from services.control.catalogue_seeder import CatalogueSeeder
from services.control.compaction import Compactor
from services.control.event_retention import EventRetention
from services.control.feature_materialiser import FeatureMaterialiser, named
from services.control.forgetting import Forgetting
from services.control.garbage_collector import GarbageCollector
from services.control.model_lineage import ModelLineages
from services.control.placement import Placement, warmth
from services.control.planning import Planner
from services.control.reconcile import Reconciler
from services.control.replica import Replica
from services.control.retrainers import Retrainers
from services.control.rollouts import Rollouts, Sources
from services.control.runs import AllowLists, Runs
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache
from services.control.worker_loop import Loop, OnChange
from services.gateway import Gateway, Stores
from services.gateway.loader import HEARTBEAT
from services.home import Home
from services.index.opening import OpenIndexes
from services.monitor.activity import DriftActivity
from services.monitor.earnings import Earnings
from services.monitor.empty_answers import EmptyAnswersMonitor
from services.monitor.gauges import EarningsGauges
from services.monitor.kpi_history import KpiHistories
from services.monitor.retrain_signals import Monitor
from services.monitor.routes import RouteGauges
from services.settings import Settings
from services.sources import code_version
from services.store.clock import EVERY
from services.triton.fleet import TritonFleet
from services.triton.scorer import TritonScorer
from services.wiring import parts
from services.wiring.state import State
from shared.datafiles import DataFiles
from shared.ports import Executor, Scorer
from shared.telemetry import metrics

_EXPORT_OVERDUE = 600.0
"""Seconds between two exports of versions that know a forgotten user after the deadline."""
_REMEMBER_FAILURE = 60.0
"""Seconds for which a failed check of the database counts in `eyas_ready`."""
_REST = 15.0
"""Seconds after which a step runs although no change is known."""


@dataclass(frozen=True)
class _Monitoring:
    """KPIs and monitoring of the recommenders."""

    earnings: Earnings
    lives: KpiHistories
    monitor: Monitor
    empty: EmptyAnswersMonitor
    exports: tuple[Callable[[], object], ...]


class Platform:
    """All parts of one process except its listening sockets."""

    def __init__(self, settings: Settings, home: Home, token: str, data_roots: tuple[str, ...], undo: ExitStack) -> None:
        state = State(settings, home, undo)
        self._loops: list[Loop] = [Loop("clock", [state.clock.synchronise], EVERY)]
        self._waiting: list[Callable[[], Sequence[str]]] = []
        self._check_database: Callable[[], Sequence[str]] = list
        self._database_failed_at = -math.inf
        self.parts: ControlParts | None = None
        self.gateway: Gateway | None = None
        if settings.role == "gateway":
            asking = parts.scorer(settings, state, undo)
            self.gateway = self._gateway(state, asking, settings.name, undo)
            self._loops.append(Loop("tritons", [functools.partial(_look, asking, self.gateway)], 0.5))
        else:
            server = parts.model_server(settings, home, state, undo)
            self.parts = self._control(settings, home, state, server, data_roots, undo)
            if settings.role == "all":
                self.gateway = self._gateway(state, server, "embedded", undo)
        limits = RateLimit(settings.control_rate, settings.online_rate, settings.recommender_rate, settings.failure_rate)
        for loop in self._loops:
            state.changes.listen(loop.notice)
        self.provider = parts.identity_provider(settings)
        if self.provider is not None:
            self._loops.append(Loop("identity provider", [self.provider.refresh], 60))
        credentials = Credentials(token, state.tokens, state.sessions, state.clock, self.provider, parts.role_rules(settings))
        self.door = AuthConfig(state.clock, credentials, state.sessions, state.answers, self._missing, RateLimits(limits))
        undo.callback(self._stop)

    def start(self) -> None:
        for part, contents in (("control", self.parts), ("gateway", self.gateway)):
            if contents is not None:
                metrics.READY.labels(part).set_function(self._is_ready)
        self._loops.append(Loop("readiness", [self._missing], 15.0))  # for `eyas_ready` where nothing probes /readyz
        for loop in self._loops:
            loop.start()

    def leaves(self, leaving: Callable[[], bool]) -> None:
        """Reports the process as not ready while `leaving` is true, so that load balancers send requests elsewhere."""
        self._waiting.append(lambda: ["the process is shutting down"] if leaving() else [])

    def _control(
        self, settings: Settings, home: Home, state: State, server: TritonFleet, data_roots: tuple[str, ...], undo: ExitStack
    ) -> ControlParts:
        executor = parts.executor(settings, home, state, undo)
        clock = state.clock
        watch = _watch(state)
        replica = self._replica(settings, state, undo)
        term = functools.partial(replica.term, "serving") if replica else None
        placement = Placement(state.routes, state.rollouts, state.registry, server, clock, warmth(state.recommenders), term)
        data = DataFiles(data_roots)
        snapshots = Snapshots(
            state.events,
            state.days,
            state.deletion,
            state.artifacts,
            state.ids,
            state.forgotten,
            state.feature_history,
            state.catalogue,
        )
        code = code_version(parts.images(settings))
        bases = StageCache(
            state.runs, state.registry, state.artifacts, state.outputs, data, code, snapshots.has_values, state.forgotten.newest
        )
        stile = None if settings.owns_home else AdmissionLease(state.leases, secrets.token_hex(8), clock)
        turns, planner = Admissions(state.runs, clock, settings.max_runs, stile), Planner(state.runs, bases, clock, settings.max_runs)
        runs = Runs(
            state.rollouts, executor, snapshots, clock, AllowLists(data_roots, tuple(settings.families)), bases, turns, state.recommenders
        )
        stores = (state.features, state.feature_history)
        routed = functools.partial(named, state.routes, state.rollouts)
        values = FeatureMaterialiser(
            placement.desired, state.registry, state.artifacts, state.recommenders, stores, clock, state.forgotten, routed
        )
        forgetting = Forgetting(state.forgotten, stores, state.registry, clock, settings.forget_within)
        sources = Sources(state.kpis, state.mirrors)
        seeder = CatalogueSeeder(routed, state.registry, state.artifacts, state.catalogue)
        rollouts = Rollouts(state.rollouts, state.routes, state.registry, server, sources, placement, clock, (values, seeder))
        lines = ModelLineages(state.registry, state.runs, state.routes, state.forgotten)
        records = (state.retrainers, state.runs, state.rollouts, state.recommenders, state.routes)
        retrainers = Retrainers(*records, watch.monitor, lines, clock)
        mark = state.changes.mark
        rolling = _reconciling(Reconciler(rollouts, clock), mark)
        placing = OnChange(_then(placement.tick, server.vouch), mark, _REST, placement.due)
        steps: list[Callable[[], object]] = [
            # The placing control plane also runs the rollouts: only it knows what is placed.
            *_by_one(replica, "serving", server.ensure_running, rolling, placing),
        ]
        control = Loop("control", steps, 0.2)
        # A separate loop, so that slow stages delay no rollout and no placement.
        working = Loop("runs", [_reconciling(Reconciler(runs, clock, replica), mark)], 0.2)
        # A separate loop, since every recommender may have a retrainer.
        retraining = [OnChange(retrainers.ensure, mark, _REST), _reconciling(Reconciler(retrainers, clock, replica), mark)]
        watching = Loop("retrainers", retraining, 1.0)
        warning = OnChange(watch.empty.warn, mark, _REST, watch.empty.due)
        monitoring = Loop("monitor", [*watch.exports, *_by_one(replica, "empty answers", warning)], 2.0)
        self._loops += [control, working, watching, monitoring, Loop("counters", [placement.export], 2.0)]
        # Redis may lose its values without a change of the database.
        filling = OnChange(values.step, mark, _REST if settings.features.get_secret_value() == "sql" else 0.0, values.due)
        self._loops.append(Loop("features", _by_one(replica, "features", filling), 1.0))
        seeding = OnChange(seeder.step, mark, _REST, seeder.due)
        self._loops.append(Loop("seeds", _by_one(replica, "seeds", seeding), 1.0))
        if state.joiner is not None:
            self._loops.append(Loop("events", [state.joiner.step], 0.05))
        if settings.role == "all":  # this process must place the versions before it can answer
            self._waiting.append(lambda: [] if placement.settled else ["the model server is loading its versions"])
        collector = self._keep_house(settings, state, executor, replica, undo)
        self._check_database = state.missing

        def wake() -> None:
            for loop in (control, working, watching):
                loop.wake()

        return ControlParts(
            recommenders=state.recommenders,
            runs=state.runs,
            rollouts=state.rollouts,
            retrainers=state.retrainers,
            registry=state.registry,
            routes=state.routes,
            catalogue=state.catalogue,
            features=Features(state.features, forgetting.write_values, values.views, values.loaded, values.again, values.drop),
            executor=executor,
            artifacts=state.artifacts,
            server=server,
            clock=clock,
            ids=state.ids,
            days=state.days,
            tokens=state.tokens,
            audit=state.audit,
            drift=watch.monitor.drift,
            liked=watch.monitor.liked,
            kpis=watch.earnings.of,
            series=watch.earnings.series,
            empty=watch.empty.of,
            life=watch.lives.of,
            lately=watch.lives.lately,
            collect=lambda dry: collector.preview() if dry else collector.sweep(),
            turns=planner.turns,
            plan=planner.plan,
            watch=retrainers.look,
            past=retrainers.past,
            forget=forgetting.forget,
            keyed_hash=state.forgotten.digest.of_text,
            stage_faults=parts.stage_faults(settings),
            check_place=data.check,
            read_file=data.read,
            place_fault=data.fault,
            table_header=data.header,
            table_changed_at=data.changed_at,
            wake=wake,
        )

    def _keep_house(
        self, settings: Settings, state: State, executor: Executor, replica: Replica | None, undo: ExitStack
    ) -> GarbageCollector:
        collector = parts.collector(settings, state)
        if settings.collect_every:
            self._loops.append(Loop("collector", _by_one(replica, "collector", collector.sweep), settings.collect_every * 60))
        self._loops.append(Loop("overdue versions", [collector.export_overdue], _EXPORT_OVERDUE))
        exporter = parts.audit_exporter(settings, state, undo)
        if exporter is not None:
            self._loops.append(Loop("audit export", [*_by_one(replica, "audit export", exporter.step), exporter.measure], 1.0))
        every = timedelta(minutes=settings.compact_every) if settings.compact_every else None
        steps: list[Callable[[], object]] = [
            Compactor(state.recommenders, state.days, state.artifacts, executor, state.clock, every, state.forgotten).step
        ]
        if every is not None:
            stores = (state.days, state.deletion, state.forgotten)
            steps.append(EventRetention(state.recommenders, *stores, state.artifacts, state.clock, every).step)
        self._loops.append(Loop("compactor", _by_one(replica, "compactor", *steps), 5.0))
        return collector

    def _gateway(self, state: State, scorer: Scorer, id: str, undo: ExitStack) -> Gateway:
        stores = Stores(
            state.routes,
            state.registry,
            state.artifacts,
            state.recommenders,
            state.events,
            state.mirrors,
            state.catalogue,
            OpenIndexes(),
            state.ids,
            state.features,
        )
        gateway = Gateway(stores, scorer, state.clock, id)
        undo.callback(gateway.close)
        self._loops.append(Loop("gateway", [OnChange(gateway.refresh, state.changes.mark, _REST, gateway.due)], 0.1))
        self._loops.append(Loop("heartbeat", [gateway.beat], HEARTBEAT.total_seconds()))
        # Without the database a gateway keeps its last routes; before its first routes it takes no traffic.
        self._waiting.append(lambda: [] if gateway.ready else ["the gateway has not read its routes yet"])
        return gateway

    def _replica(self, settings: Settings, state: State, undo: ExitStack) -> Replica | None:
        """Registers one of several control planes; None if this process owns the home."""
        if settings.owns_home:
            return None
        replica = Replica(settings.name, state.leases, state.clock)
        undo.callback(replica.close)
        self._loops.append(Loop("heart", [replica.beat], replica.beat_every.total_seconds()))
        return replica

    def _missing(self) -> Sequence[str]:
        faults = self._check_database()
        self._database_failed_at = time.monotonic() if faults else -math.inf
        return [*self._waiting_reasons(), *faults]

    def _waiting_reasons(self) -> Sequence[str]:
        return [reason for waiting in self._waiting for reason in waiting()]

    def _is_ready(self) -> bool:
        """Evaluated at each scrape, so it does not read the database, which may hang: a failure at /readyz counts for a minute."""
        return not self._waiting_reasons() and time.monotonic() - self._database_failed_at > _REMEMBER_FAILURE

    def _stop(self) -> None:
        for loop in self._loops:
            loop.stop()


def _watch(state: State) -> _Monitoring:
    activity = DriftActivity(state.routes, state.sightings)
    earnings = Earnings(state.recommenders, state.registry, state.artifacts, state.kpis, state.clock)
    sources = (state.events, state.sightings, state.artifacts)
    monitor = Monitor(state.recommenders, state.routes, state.registry, *sources, state.clock, activity)
    gauges = EarningsGauges(state.recommenders, state.routes, earnings, state.clock, activity)
    empty = EmptyAnswersMonitor(state.recommenders, state.routes, state.kpis, state.clock, activity)
    lives = KpiHistories(state.recommenders, state.routes, state.sightings, state.clock)
    routes = RouteGauges(state.routes, state.rollouts, state.clock)
    exports = tuple(OnChange(exporter.export, state.changes.mark, _REST, exporter.due) for exporter in (routes, monitor, gauges, empty))
    return _Monitoring(earnings, lives, monitor, empty, exports)


def _reconciling(rows: Reconciler[Any, Any, Any], mark: Callable[[], object]) -> OnChange:
    return OnChange(rows.tick, mark, _REST, rows.due)


def _by_one(replica: Replica | None, name: str, *steps: Callable[[], object]) -> tuple[Callable[[], object], ...]:
    """Returns steps that only one control plane at a time runs."""
    return tuple(replica.single(name, step) for step in steps) if replica else steps


def _then(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], None]:
    """Returns one step of two; the second runs only if the first succeeds."""

    def both() -> None:
        first()
        second()

    return both


def _look(scorer: TritonScorer, gateway: Gateway) -> None:
    scorer.refresh(gateway.versions)
