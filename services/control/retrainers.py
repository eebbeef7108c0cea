"""Retrainers in the control loop: read the triggers and start the runs that follow.

An unused recommender is checked ever more rarely, and at once after use, a change of its route or spec, or a request; a due time is never
missed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from services.control.model_lineage import ModelLineages
from services.control.reconcile import Simple
from shared.contracts.plans import retrain_plan
from shared.contracts.records import RetrainerSpec
from shared.domain import retrainer as domain
from shared.domain import rollout as rollouts
from shared.domain import run as runs
from shared.domain.drift.reading import DriftLook
from shared.domain.errors import NotFound
from shared.domain.machine import Request
from shared.domain.retrainer import StartRun, run_id
from shared.domain.route import Route
from shared.domain.triggers import RetrainerObservation, RetrainerStatus, RetrainPlan
from shared.domain.warm_or_full import KNOWS_FORGOTTEN, TrainingHistory
from shared.ports import (
    Clock,
    NewestTimes,
    Recommender,
    RecommenderStore,
    Record,
    RetrainerRecord,
    RetrainerStore,
    RolloutStore,
    RouteStore,
    RunStore,
    SignalSource,
)
from shared.run_factory import RunTerms, new_run, rollout_id
from shared.telemetry import metrics

LONGEST_REST = timedelta(minutes=5)
REST = 0.1
"""Share of a recommender's quiet time: the longest delay of changes that time alone causes."""
_NOTHING = NewestTimes(None, None)


class Retrainers(Simple[RetrainerStatus, StartRun]):
    """Kind of retrainers: one row per recommender."""

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
        lines: ModelLineages,
        clock: Clock,
    ) -> None:
        self._activity = signals.activity
        self._ensured: Mapping[str, int] | None = None
        self._last_inputs: tuple[Mapping[str, Route], Mapping[str, int], Mapping[str, NewestTimes]] = {}, {}, {}
        self.store = store
        self._runs = runs
        self._rollouts = rollouts
        self._recommenders = recommenders
        self._routes = routes
        self._signals = signals
        self._lines = lines
        self._clock = clock

    def ensure(self) -> None:
        """Creates the missing retrainers of all recommenders."""
        heads = self._recommenders.heads()
        if heads is self._ensured:
            return
        existing = {row.id for row in self.store.queued()}  # a retrainer never ends
        for name in heads.keys() - existing:
            now = self._clock.now()
            self.store.create(Record(name, name, RetrainerSpec(), RetrainerStatus(), now, now), "eyas")
        self._ensured = heads

    def awake(self) -> Collection[str]:
        """Returns recommenders whose route, spec or use has changed."""
        if self._activity is None:
            return ()
        before, self._last_inputs = self._last_inputs, (self._routes.all(), self._recommenders.heads(), self._activity.newest())
        return set[str]().union(*(_changed(old, new) for old, new in zip(before, self._last_inputs, strict=True)))

    def observe(self, record: RetrainerRecord) -> RetrainerObservation:
        try:
            applied = self._recommenders.get(record.recommender).updated_at
        except NotFound:
            _hide(record.recommender)
            return RetrainerObservation(record.request, gone=True)
        _show(record)
        if record.status.state == "retraining":
            ended, promoted = self._ended(record.status.run)
            return RetrainerObservation(record.request, ended=ended, promoted=promoted, applied=applied)
        return self.look(record.recommender, record.request, applied)

    def look(self, recommender: str, request: Request | None = None, applied: datetime | None = None) -> RetrainerObservation:
        """Reads the input of all triggers, whatever state the retrainer has."""
        busy = self._busy(recommender)
        route = self._routes.get(recommender)
        if route is None:
            return RetrainerObservation(request, busy=busy, applied=applied)
        signals = self._signals.signals(recommender)
        return RetrainerObservation(
            request,
            busy=busy,
            serving=True,
            version=route.stable,
            drift=signals.drift,
            kpi=signals.kpi,
            snapshot=signals.snapshot,
            events=signals.events,
            applied=applied,
            past=self._past(recommender, signals.drift),
        )

    def past(self, recommender: Recommender) -> TrainingHistory:
        """Returns the facts by which `auto` would choose, whatever mode the spec asks for."""
        serves = self._routes.get(recommender.name) is not None
        return self._lines.past(recommender, self._signals.signals(recommender.name).drift if serves else None)

    def _past(self, name: str, drift: DriftLook | None) -> TrainingHistory | None:
        with suppress(NotFound):
            recommender = self._recommenders.get(name)
            return self._lines.past(recommender, drift) if retrain_plan(recommender.spec).chooses else None
        return None

    def decide(self, record: RetrainerRecord, observation: RetrainerObservation, now: datetime) -> domain.RetrainerDecision:
        if observation.gone:
            retired = domain.retire(record.status, observation)
            still = self._activity is not None and record.status.state == "retired"
            return replace(retired, requeue_after=LONGEST_REST) if still else retired
        plan = retrain_plan(self._recommenders.get(record.recommender).spec)
        decision = domain.decide(record.id, record.status, observation, plan, now)
        rest = self._rest(record.recommender, decision.next, observation, plan, now)
        return decision if rest is None else replace(decision, requeue_after=rest)

    def _rest(
        self, name: str, status: RetrainerStatus, observation: RetrainerObservation, plan: RetrainPlan, now: datetime
    ) -> timedelta | None:
        """Returns how long the check of an unused recommender may wait; None: as long as the domain says."""
        waits = (
            observation.busy
            or observation.request
            or any(not held_firing.dropped for held_firing in status.held)
            or status.drift.moved
            or status.kpi.moved
        )
        if self._activity is None or status.state != "watching" or waits:
            return None
        routes, _, newest = self._last_inputs
        route = routes.get(name)
        last = [newest.get(name, _NOTHING).at, observation.applied, route.since if route is not None else None]
        quiet = now - max((at for at in last if at is not None), default=now)
        due = [status.calm_after, *status.follow[:1]]
        if plan.schedule is not None:
            due.append(plan.schedule.next(now))
        if plan.new_data is not None and observation.snapshot is not None:
            due.append(observation.snapshot + plan.new_data)
        ahead = [at - now for at in due if at is not None and at > now]
        return max(domain.WATCH, min(LONGEST_REST, quiet * REST, *ahead))

    def act(self, record: RetrainerRecord, following: RetrainerStatus, effect: StartRun) -> None:
        with suppress(NotFound):  # deleted since the decision: it retires next
            recommender = self._recommenders.get(record.recommender)
            route = self._routes.get(record.recommender)
            serving = route.stable if route else None
            mode, reason = effect.mode, effect.reason
            if mode == "warm" and self._lines.past(recommender, None).knows_forgotten:
                mode, reason = "full", f"{reason}; full: {KNOWS_FORGOTTEN}"
            run = new_run(
                recommender,
                run_id(record.id, effect.number),
                mode,
                reason,
                serving,
                self._clock.now(),
                RunTerms(trigger=effect.trigger),
            )
            self._runs.create(run, "eyas")

    def committed(self, record: RetrainerRecord, following: RetrainerStatus) -> None:
        for held_firing in following.held:
            if held_firing not in record.status.held:
                metrics.RETRAININGS_HELD.labels(record.recommender, held_firing.trigger).inc()
        if following.state == "retraining" and record.status.state != "retraining":
            with suppress(NotFound):
                mode = self._runs.get(following.run or "").spec.mode
                metrics.RETRAININGS.labels(record.recommender, following.firings[-1].trigger, mode).inc()

    def _busy(self, recommender: str) -> str | None:
        for kind, store in (("run", self._runs), ("rollout", self._rollouts)):
            active = store.list(recommender, active=True, limit=1)
            if active:
                return f"{kind} {active[0].id} is under way"
        return None

    def _ended(self, run: str | None) -> tuple[str | None, bool]:
        """Returns how the retraining ended, by its run or the rollout that followed, and whether its version was promoted."""
        if run is None:
            return "the run is unknown", False
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
        outcome = f"version {rollout.spec.version} {rollout.status.state.replace('_', ' ')}: {rollout.status.reason}"
        return outcome, rollout.status.state == "promoted"


def _changed(old: Mapping[str, object], new: Mapping[str, object]) -> Collection[str]:
    """Returns the keys that were added, removed or changed."""
    if old is new:
        return ()
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def _show(record: RetrainerRecord) -> None:
    """Sets the gauges at each look: a new process starts without them."""
    name, status = record.recommender, record.status
    metrics.RETRAINER_ALERTING.labels(name).set(status.state == "alerting")
    metrics.FRUITLESS.labels(name).set(status.fruitless)
    for trigger, memory in (("drift", status.drift), ("kpi", status.kpi)):
        metrics.DRIFTING.labels(name, trigger).set(len(memory.moved))


def _hide(name: str) -> None:
    for gauge, labels in (
        (metrics.RETRAINER_ALERTING, (name,)),
        (metrics.FRUITLESS, (name,)),
        *((metrics.DRIFTING, (name, trigger)) for trigger in ("drift", "kpi")),
    ):
        with suppress(KeyError):
            gauge.remove(*labels)
