"""Conversion of a spec to the plans that the domain's decisions use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from shared.contracts.gates import (
    ForgottenGate,
    LatencyGate,
    MedianGate,
    MemoryGate,
    MetricGate,
    OffPolicyGate,
    ParityGate,
    SizeGate,
    ThroughputGate,
)
from shared.contracts.gates import Gate as SpecGate
from shared.contracts.retraining import OnAlert, OnDrift, OnKpi, OnNewData, OnNewEvents, Retrain
from shared.contracts.spec import RecommenderSpec
from shared.domain.cron import Cron
from shared.domain.gate import REFIT, Gate
from shared.domain.machine import Request
from shared.domain.metric import FORGOTTEN
from shared.domain.rollout_plan import RolloutPlan, ShadowPlan, StepPlan
from shared.domain.run import STAGES, RunPlan, run_stages
from shared.domain.stage_reuse import leaves
from shared.domain.triggers import RetrainPlan, Schedule
from shared.domain.warm_or_full import FullRunLimits

READS: Mapping[str, tuple[str, ...]] = {
    "etl": (
        "data",
        "schema",
        "features",
        "split.by",
        "split.test",
        "model.family",
        "model.params.negatives",
        "resources.etl.engine",
        "serve.store.ttl",
    ),
    "train": ("model", "serve.retrieve", "resources.train.memory"),
    "evaluate": ("schema", "evaluate", "serve.retrieve", "model.train.seed"),
    "refit": ("model", "schema", "serve.retrieve", "resources.train.memory"),
    "export": (
        "name",
        "schema",
        "model",
        "serve.device",
        "serve.instances",
        "serve.warm_up",
        "serve.lists",
        "serve.attributes",
        "serve.vocabulary_limit",
        "serve.recent",
        "serve.retrieve",
        "serve.batch",
        "serve.store.ttl",
    ),
    "verify": (),
}
"""Fields of the spec that each stage reads, in addition to its input files. Evaluate and refit also read whether seen items are dropped,
and evaluate reads the metrics of gates."""

READS_WARM: Mapping[str, tuple[str, ...]] = {"train": ("retrain.warm",), "refit": ("retrain.warm",)}
"""Additional fields in a warm run."""

TAKES: Mapping[str, tuple[str, ...]] = {
    "etl": (),
    "train": ("etl",),
    "evaluate": ("etl", "train"),
    "refit": ("etl", "train"),
    "export": ("etl", "train", "refit"),
    "verify": ("export",),
}
"""Earlier stages whose files each stage reads."""


def stage_parts(spec: RecommenderSpec, stage: str, mode: str = "full") -> dict[str, str]:
    """Returns the fields of the spec that a stage reads: each field's path with its value.

    Gates decide about the training only where the spec does not set the number of negatives.
    """
    document = spec.document()
    document["model"].pop("tune", None)  # a run does not search
    parts: dict[str, str] = {}
    for path in (*READS[stage], *(READS_WARM.get(stage, ()) if mode == "warm" else ())):
        parts |= leaves(_at(document, path), path)
    if stage in ("evaluate", "refit"):
        parts |= leaves(spec.serve.not_seen is not None, "serve.filter.not_seen")
    draws_by_labels = getattr(spec.model.params, "negatives", 0) is None and not spec.ranks_catalogue
    if stage in ("train", "refit") and draws_by_labels:
        parts |= leaves(False, "gates.ranking")
    if stage == "evaluate":
        parts |= leaves(gated_metrics(spec), "gates.metric")
    return {f"spec: {name}": value for name, value in parts.items()}


def _at(document: Mapping[str, Any], path: str) -> Any:
    """Returns the value at the path; None if a family has no such parameter."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def gated_metrics(spec: RecommenderSpec) -> list[str]:
    return sorted({str(gate.named) for gate in spec.gates if isinstance(gate, MetricGate)})


def estimators(spec: RecommenderSpec) -> list[str]:
    """Returns the estimators of the online hit rate that gates ask for."""
    return sorted({gate.off_policy for gate in spec.gates if isinstance(gate, OffPolicyGate)})


def run_plan(spec: RecommenderSpec, mode: str = "warm") -> RunPlan:
    """Returns the plan of a run; a full run has no parent, so gates on forgetting do not apply."""
    timeouts = {stage: spec.resources.of(stage).timeout for stage in STAGES}
    gates = (gate for gate in spec.gates if mode == "warm" or not isinstance(gate, ForgottenGate))
    rules = tuple(gate_rule(gate) for gate in gates)
    return RunPlan((*rules, REFIT) if spec.split.refit else rules, timeouts, run_stages(spec.split.refit))


def rollout_plan(spec: RecommenderSpec, back: Request | None = None) -> RolloutPlan:
    rollout, analysis = spec.rollout, spec.rollout.analysis
    return RolloutPlan(
        steps=tuple(
            StepPlan(
                weight=step.weight,
                max=step.max or analysis.deadline,
                min=step.min or timedelta(0),
                min_users=step.min_users or analysis.min_users,
                min_answers=step.min_answers or analysis.min_answers,
            )
            for step in rollout.steps
        ),
        max_harm=analysis.max_harm,
        shadow=ShadowPlan(rollout.shadow.for_, rollout.shadow.min_answers) if rollout.shadow else None,
        goal=analysis.goal,
        every=analysis.every,
        failures=analysis.failures,
        inconclusive=analysis.inconclusive,
        progress=rollout.progress,
        guardrails=analysis.guardrails.rules(),
        back=back,
    )


def retrain_plan(spec: RecommenderSpec) -> RetrainPlan:
    retrain = spec.retrain
    on = {type(trigger): trigger for trigger in retrain.on}
    drift, kpi, alert = on.get(OnDrift), on.get(OnKpi), on.get(OnAlert)
    new_events, new_data = on.get(OnNewEvents), on.get(OnNewData)
    plan = RetrainPlan(mode=retrain.mode, cooldown=retrain.cooldown, schedule=_schedule(retrain), max_per_day=retrain.max_per_day)
    plan = replace(plan, give_up_after=retrain.give_up_after, follow_up=retrain.follow_up, auto=auto_rule(retrain))
    if isinstance(drift, OnDrift):
        plan = replace(plan, drift=drift.drift.thresholds(), looks=drift.drift.looks, drift_mode=drift.drift.mode)
    if isinstance(kpi, OnKpi):
        plan = replace(plan, kpi=kpi.kpi.thresholds(), kpi_mode=kpi.kpi.mode)
    if isinstance(new_events, OnNewEvents):
        plan = replace(plan, new_events=new_events.new_events.count, new_events_mode=new_events.new_events.mode)
    if isinstance(new_data, OnNewData):
        plan = replace(plan, new_data=new_data.new_data.every, new_data_mode=new_data.new_data.mode)
    if isinstance(alert, OnAlert):
        plan = replace(plan, alerts=frozenset(alert.alert.names), alert_mode=alert.alert.mode)
    return plan


def auto_rule(retrain: Retrain) -> FullRunLimits:
    auto = retrain.auto
    return FullRunLimits(auto.grown, auto.warm_runs, auto.forgotten, auto.drift)


def _schedule(retrain: Retrain) -> Schedule | None:
    if retrain.schedule is None:
        return None
    mode = retrain.schedule_mode or retrain.mode
    return Schedule(Cron.parse(retrain.schedule), retrain.timezone, mode, retrain.misfire, retrain.misfire_grace)


def batches(spec: RecommenderSpec) -> tuple[int | None, ...]:
    """Returns the batch sizes of the serving gates; None is the whole catalogue, also the default."""
    named = {gate.batch for gate in spec.gates if isinstance(gate, LatencyGate | MedianGate | ThroughputGate)}
    return tuple(sorted(named, key=lambda batch: batch or 0)) or (None,)


def at_batch(metric: str, batch: int | None) -> str:
    """Returns the name of a measurement with this batch size: `latency_p99@500`, or `latency_p99` for the whole catalogue."""
    return metric if batch is None else f"{metric}@{batch}"


def gate_rule(gate: SpecGate) -> Gate:
    if isinstance(gate, ParityGate):
        return Gate("parity", "max", gate.parity, stage="verify")
    if isinstance(gate, MemoryGate):
        return Gate("memory", "max", gate.memory / (1 << 20), stage="verify", unit=" MiB")
    if isinstance(gate, LatencyGate):
        return Gate(at_batch("latency_p99", gate.batch), "max", gate.latency_p99.total_seconds() * 1000, stage="verify", unit=" ms")
    if isinstance(gate, MedianGate):
        return Gate(at_batch("latency_p50", gate.batch), "max", gate.latency_p50.total_seconds() * 1000, stage="verify", unit=" ms")
    if isinstance(gate, ThroughputGate):
        return Gate(at_batch("throughput", gate.batch), "min", gate.throughput, stage="verify", unit=" rows/s")
    if isinstance(gate, SizeGate):
        return Gate("size", "max", gate.size / (1 << 20), stage="verify", unit=" MiB")
    return replace(_estimated(gate), confidence=gate.sure, min_users=gate.min_users, inconclusive=gate.policy)


def _estimated(gate: MetricGate | OffPolicyGate | ForgottenGate) -> Gate:
    if isinstance(gate, ForgottenGate):
        return Gate(FORGOTTEN, "max", gate.forgotten)
    name = str(gate.named)
    if isinstance(gate, MetricGate) and gate.min is not None:
        return Gate(name, "min", gate.min)
    if gate.better_than is not None:
        return Gate(name, "better_than", against=gate.better_than, margin=gate.by)
    assert gate.not_worse_than is not None
    return Gate(name, "not_worse_than", against=gate.not_worse_than, margin=gate.by)
