"""From the spec, as users write it, to the plans that the decisions take."""

from __future__ import annotations

from datetime import timedelta

from shared.contracts.spec import KpiTrigger, LatencyGate, MetricGate, OnDrift, OnKpi, ParityGate, RecommenderSpec
from shared.domain.gate import Gate
from shared.domain.retrainer import RetrainPlan
from shared.domain.rollout import RolloutPlan
from shared.domain.run import STAGES, RunPlan


def run_plan(spec: RecommenderSpec) -> RunPlan:
    timeouts: dict[str, timedelta] = {stage: getattr(spec.resources, stage).timeout for stage in STAGES}
    return RunPlan(tuple(gate_rule(gate) for gate in spec.gates), timeouts)


def rollout_plan(spec: RecommenderSpec) -> RolloutPlan:
    analysis = spec.rollout.analysis
    return RolloutPlan(spec.rollout.steps, analysis.max_harm, analysis.min_users, analysis.deadline)


def retrain_plan(spec: RecommenderSpec) -> RetrainPlan:
    drift = next((on.drift for on in spec.retrain.on if isinstance(on, OnDrift)), None)
    kpi: KpiTrigger | None = next((on.kpi for on in spec.retrain.on if isinstance(on, OnKpi)), None)
    return RetrainPlan(
        mode=spec.retrain.mode,
        cooldown=spec.retrain.cooldown,
        psi=drift.psi if drift else None,
        hit_rate=kpi.hit_rate if kpi else None,
        hit_rate_mode=kpi.mode if kpi else "full",
    )


def gate_rule(gate: MetricGate | ParityGate | LatencyGate) -> Gate:
    if isinstance(gate, ParityGate):
        return Gate("parity", "max", gate.parity, stage="verify")
    if isinstance(gate, LatencyGate):
        return Gate("latency_p99", "max", gate.latency_p99.total_seconds() * 1000, stage="verify", unit=" ms")
    if gate.min is not None:
        return Gate(gate.metric, "min", gate.min)
    if gate.better_than is not None:
        return Gate(gate.metric, "better_than", against=gate.better_than, margin=gate.by)
    assert gate.not_worse_than is not None
    return Gate(gate.metric, "not_worse_than", against=gate.not_worse_than, margin=gate.by)
