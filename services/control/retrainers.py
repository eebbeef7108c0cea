"""Retrainers in the loop: what the world says, and the runs that follow from it."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from services.control.lines import Lines
from services.control.reconcile import Simple
from shared.contracts.plans import retrain_plan
from shared.domain import retrainer as domain
from shared.domain import rollout as rollouts
from shared.domain import run as runs
from shared.domain.drift.reading import Look
from shared.domain.errors import NotFound
from shared.domain.machine import Request
from shared.domain.retrainer import StartRun, run_id
from shared.domain.triggers import RetrainerObservation, RetrainerStatus
from shared.domain.warmth import Past
from shared.launch import new_run, rollout_id
from shared.ports import Clock, Recommender, RecommenderStore, Record, RetrainerStore, RolloutStore, RouteStore, RunStore, SignalSource
from shared.telemetry import metrics


class Retrainers(Simple[RetrainerStatus, StartRun]):
    """The Kind of retrainers: one row a recommender."""

    machine = domain.MACHINE
    status_type: Any = RetrainerStatus
    effect_type: Any = StartRun

    def __init__(
        self,
        store: RetrainerStore,
        runs: RunStore,
        rollouts: RolloutStore,
        recommenders: RecommenderStore,
        routes: RouteStore,
        signals: SignalSource,
        lines: Lines,
        clock: Clock,
    ) -> None:
        self.store = store
        self._runs = runs
        self._rollouts = rollouts
        self._recommenders = recommenders
        self._routes = routes
        self._signals = signals
        self._lines = lines
        self._clock = clock

    def ensure(self) -> None:
        """Every recommender has its retrainer."""
        known = {record.id for record in self.store.list(limit=10_000)}
        for recommender in self._recommenders.list():
            if recommender.name not in known:
                now = self._clock.now()
                self.store.create(Record(recommender.name, recommender.name, {}, RetrainerStatus(), now, now), "eyas")

    def observe(self, record: Record[RetrainerStatus]) -> RetrainerObservation:
        try:
            applied = self._recommenders.get(record.recommender).updated_at
        except NotFound:
            _hide(record.recommender)
            return RetrainerObservation(record.asked, gone=True)
        _show(record)
        if record.status.state == "retraining":
            ended, promoted = self._ended(record.status.run)
            return RetrainerObservation(record.asked, ended=ended, promoted=promoted, applied=applied)
        return self.look(record.recommender, record.asked, applied)

    def look(self, recommender: str, asked: Request | None = None, applied: datetime | None = None) -> RetrainerObservation:
        """What every trigger looks at, whatever the retrainer does."""
        busy = self._busy(recommender)
        route = self._routes.get(recommender)
        if route is None:
            return RetrainerObservation(asked, busy=busy, applied=applied)
        found = self._signals.signals(recommender)
        return RetrainerObservation(
            asked,
            busy=busy,
            serving=True,
            version=route.stable,
            drift=found.drift,
            kpi=found.kpi,
            snapshot=found.snapshot,
            events=found.events,
            applied=applied,
            past=self._past(recommender, found.drift),
        )

    def past(self, recommender: Recommender) -> Past:
        """What `auto` would choose by, whatever the spec asks for."""
        serves = self._routes.get(recommender.name) is not None
        return self._lines.past(recommender, self._signals.signals(recommender.name).drift if serves else None)

    def _past(self, name: str, drift: Look | None) -> Past | None:
        with suppress(NotFound):
            recommender = self._recommenders.get(name)
            return self._lines.past(recommender, drift) if retrain_plan(recommender.spec).chooses else None
        return None

    def decide(self, record: Record[RetrainerStatus], seen: RetrainerObservation, now: datetime) -> domain.RetrainerDecision:
        if seen.gone:
            return domain.retire(record.status, seen)
        plan = retrain_plan(self._recommenders.get(record.recommender).spec)
        return domain.decide(record.id, record.status, seen, plan, now)

    def act(self, record: Record[RetrainerStatus], following: RetrainerStatus, effect: StartRun) -> None:
        with suppress(NotFound):  # deleted since it was decided: it retires next
            recommender = self._recommenders.get(record.recommender)
            route = self._routes.get(record.recommender)
            serving = route.stable if route else None
            run = new_run(recommender, run_id(record.id, effect.number), effect.mode, effect.reason, serving, self._clock.now())
            self._runs.create(run, "eyas")

    def committed(self, record: Record[RetrainerStatus], following: RetrainerStatus) -> None:
        for held in following.held:
            if held not in record.status.held:
                metrics.RETRAININGS_HELD.labels(record.recommender, held.trigger).inc()
        if following.state == "retraining" and record.status.state != "retraining":
            with suppress(NotFound):
                mode = self._runs.get(following.run or "").spec["mode"]
                metrics.RETRAININGS.labels(record.recommender, following.firings[-1].trigger, mode).inc()

    def _busy(self, recommender: str) -> str | None:
        for what, store in (("run", self._runs), ("rollout", self._rollouts)):
            active = store.list(recommender, active=True, limit=1)
            if active:
                return f"{what} {active[0].id} is under way"
        return None

    def _ended(self, run: str | None) -> tuple[str | None, bool]:
        """How the retraining ended, with its run or with the rollout that followed, and whether its version serves."""
        if run is None:
            return "its run is unknown", False
        try:
            record = self._runs.get(run)
        except NotFound:
            return f"run {run} was never started: the recommender was deleted meanwhile", False
        if not runs.MACHINE.terminal(record.status.state):
            return None, False
        if record.status.state != "registered":
            return f"run {run} {record.status.state}: {record.status.reason}", False
        try:
            rollout = self._rollouts.get(rollout_id(run))
        except NotFound:
            return f"run {run} has no rollout", False
        if not rollouts.MACHINE.terminal(rollout.status.state):
            return None, False
        said = f"version {rollout.spec['version']} {rollout.status.state.replace('_', ' ')}: {rollout.status.reason}"
        return said, rollout.status.state == "promoted"


def _show(record: Record[RetrainerStatus]) -> None:
    """What people watch, at each look: it outlives no process."""
    name, status = record.recommender, record.status
    metrics.RETRAINER_ALERTING.labels(name).set(status.state == "alerting")
    metrics.FRUITLESS.labels(name).set(status.fruitless)
    for trigger, memory in (("drift", status.drift), ("kpi", status.kpi)):
        metrics.DRIFTING.labels(name, trigger).set(len(memory.moved))


def _hide(name: str) -> None:
    for gauge, labels in (
        (metrics.RETRAINER_ALERTING, (name,)),
        (metrics.FRUITLESS, (name,)),
        *((metrics.DRIFTING, (name, one)) for one in ("drift", "kpi")),
    ):
        with suppress(KeyError):
            gauge.remove(*labels)
