"""Gauges of routes, and of the reports of active rollouts.

They are read from rows and routes, so every control plane exports the same, even if it has just started or lost its lease. Labels are
bounded: the current route, the two variants, and the checks of the spec.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from prometheus_client import Gauge

from shared.contracts.rollouts import Analysis, Rollout
from shared.domain.errors import EyasError
from shared.domain.gate import Verdict
from shared.domain.step_analysis import StepReport
from shared.ports import Clock, RolloutStore, RouteStore
from shared.run_factory import spec_of
from shared.telemetry import metrics

_VERDICTS = {Verdict.PASS: 1, Verdict.INCONCLUSIVE: 0, Verdict.FAIL: -1, Verdict.ERROR: -2}
_MOST = 100_000
"""Maximum of active rollouts."""
Value = tuple[Gauge, tuple[str, ...], float]


class RouteGauges:
    def __init__(self, routes: RouteStore, rollouts: RolloutStore, clock: Clock) -> None:
        self._routes = routes
        self._rollouts = rollouts
        self._clock = clock
        self._shown: set[tuple[Gauge, tuple[str, ...]]] = set()
        self._rollout_specs: dict[str, Rollout] = {}

    def export(self) -> None:
        shown = set()
        for gauge, labels, value in (*self._of_routes(), *self._of_rollouts()):
            gauge.labels(*labels).set(value)
            shown.add((gauge, labels))
        for gauge, labels in self._shown - shown:  # an ended rollout has no gauges
            gauge.remove(*labels)
        self._shown = shown

    def due(self) -> float | None:
        """Returns 0 while rollouts are active: their waiting time grows. None: nothing changes with time alone."""
        return 0.0 if self._rollout_specs else None

    def _of_routes(self) -> Iterator[Value]:
        for name, route in self._routes.all().items():
            yield metrics.SERVING, (name,), route.stable
            yield metrics.WEIGHT, (name,), route.weight
            if route.since is not None:
                candidate = "none" if route.candidate is None else str(route.candidate)
                yield metrics.ROUTE_SINCE, (name, str(route.stable), candidate), route.since.timestamp()

    def _of_rollouts(self) -> Iterator[Value]:
        rollout_specs: dict[str, Rollout] = {}
        for row in self._rollouts.list(active=True, limit=_MOST):
            if row.status.state == "pending":  # waits for another rollout of the recommender
                continue
            with suppress(EyasError):  # the reconciler logs it
                rollout_specs[row.id] = rollout = self._rollout_specs.get(row.id) or spec_of(row).rollout
                if row.status.since is not None:
                    shadow = rollout.shadow.for_ if rollout.shadow is not None and row.status.state == "shadow" else timedelta()
                    waits = max(timedelta(), self._clock.now() - row.status.since - shadow)
                    yield metrics.ROLLOUT_WAITS, (row.recommender, row.status.state), waits.total_seconds()
                for report in row.status.reports[-1:]:
                    yield from _of_step(row.recommender, report, rollout.analysis)
        self._rollout_specs = rollout_specs


def _of_step(name: str, report: StepReport, analysis: Analysis) -> Iterator[Value]:
    for variant, sample in (("stable", report.stable), ("candidate", report.candidate)):
        yield metrics.ROLLOUT_USERS, (name, variant), sample.users
        earned = sample.mean if analysis.goal == "hit_rate" else sample.converted / sample.users if sample.users else 0.0
        yield metrics.ROLLOUT_GOAL, (name, variant), earned
    goal = report.judgement
    for bound, lift in (("lower", goal.lower), ("estimate", goal.lift), ("upper", goal.upper), ("limit", -analysis.max_harm)):
        if lift is not None and goal.lift is not None:
            yield metrics.ROLLOUT_LIFT, (name, bound), lift
    for check, judgement in (("goal", goal), *((outcome.name, outcome.judgement) for outcome in report.checks)):
        yield metrics.ROLLOUT_CHECK, (name, check), _VERDICTS[judgement.verdict]
