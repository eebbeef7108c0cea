"""Questions to Prometheus, taken apart by a parser of its language: which metrics and labels they name, and the unit of their answers."""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from shared.telemetry import metrics
from tests.support.alert_rules import rules

Unit = Mapping[str, int]
"""Exponents: {"s": 1} are seconds, {"n": 1, "s": -1} is a number of things a second, {} is a share."""
SHARE: Unit = {}
_NUMBER: Unit = {"n": 1}
_SUFFIXES: Mapping[type[MetricWrapperBase], tuple[str, ...]] = {
    Counter: ("_total",),
    Gauge: ("",),
    Histogram: ("_bucket", "_sum", "_count"),
}
_TARGET = frozenset({"job", "instance"})
_OF_MODELS = frozenset({"model", "version"})
TRITON = {
    f"nv_inference_{one}": _OF_MODELS
    for one in ("request_success", "request_failure", "request_duration_us", "queue_duration_us", "compute_infer_duration_us")
}
"""Triton's own; the real one is held against it where it runs."""
_OF_GPUS = frozenset({"gpu_uuid"})
TRITON_ON_GPUS = {f"nv_gpu_{name}": _OF_GPUS for name in ("utilization", "memory_used_bytes", "memory_total_bytes")}
"""Exported by a Triton with a GPU alone, by NVIDIA's documentation: not seen here."""
_BY_NAME = {"_seconds": "s", "_us": "us", "_bytes": "B", "_total": "n", "_count": "n", "_answers": "n", "_users": "n", "_items": "n"}
_SHARES = (
    *("eyas_hit_rate", "eyas_variant_hit_rate", "eyas_slice_hit_rate", "eyas_click_rate", "eyas_conversion", "eyas_slice_conversion"),
    *(
        "eyas_coverage",
        "eyas_empty_answer_share",
        "eyas_empty_answer_limit",
        "eyas_candidate_weight",
        "eyas_drift_chance",
        "eyas_rollout_goal",
        "eyas_rollout_lift",
    ),
)
_NUMBERS = (
    *(
        "eyas_run_queue",
        "eyas_audit_waiting",
        "eyas_events_waiting",
        "eyas_impressions_waiting",
        "eyas_feature_parts_waiting",
        "eyas_drifting",
    ),
    *(
        "eyas_retrainings_fruitless",
        "eyas_retrainer_alerting",
        "eyas_forgotten_versions_overdue",
        "process_open_fds",
        "eyas_http_connections",
        "eyas_http_connections_limit",
        "eyas_ready",
    ),
)
_OTHERS = {
    **dict.fromkeys(_SHARES, SHARE),
    **dict.fromkeys(_NUMBERS, _NUMBER),
    "nv_gpu_utilization": SHARE,
    "eyas_novelty": {"bit": 1},
}
"""What names that end with no unit are counted in; all others have none."""
_SAME = frozenset({"sum", "max", "min", "avg", "topk", "bottomk"})


_RECORDED = frozenset({"slo", "recommender"})
"""Labels of the recorded series that a dashboard reads."""


def known() -> Mapping[str, frozenset[str]]:
    """Every series' name with its labels: ours, those of any process that Python's client tells of, and Triton's."""
    found = TRITON | TRITON_ON_GPUS
    for one in vars(metrics).values():
        if isinstance(one, MetricWrapperBase):
            for suffix in _SUFFIXES[type(one)]:
                found[one._name + suffix] = frozenset((*one._labelnames, *(("le",) if suffix == "_bucket" else ())))
    for family in REGISTRY.collect():
        if family.name.startswith("process_"):
            found |= {sample.name: frozenset() for sample in family.samples}
    found |= {name: _RECORDED for name in rules("record") if name.startswith("eyas:slo_")}
    return {name: labels | _TARGET for name, labels in found.items()}


def selectors(question: str) -> list[promql.VectorSelector]:
    return list(_selectors(promql.parse(question)))


def _selectors(node: Any) -> Iterator[promql.VectorSelector]:
    if isinstance(node, promql.VectorSelector):
        yield node
    for child in _children(node):
        yield from _selectors(child)


def _children(node: Any) -> list[Any]:
    match type(node).__name__:
        case "BinaryExpr":
            return [node.lhs, node.rhs]
        case "AggregateExpr" | "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            return [node.expr]
        case "Call":
            return list(node.args)
        case "MatrixSelector":
            return [node.vector_selector]
        case "VectorSelector" | "NumberLiteral" | "StringLiteral":
            return []
    raise AssertionError(f"{type(node).__name__} is not taken apart yet: {node}")


def faults(question: str) -> list[str]:
    """Metrics that nobody exports, and labels that they don't have: in matchers, and in what is grouped by."""
    names, found = known(), []
    for one in selectors(question):
        if one.name not in names:
            found.append(f"unknown metric {one.name}")
            continue
        found += [f"{one.name} has no label {matcher.name}" for matcher in one.matchers.matchers if matcher.name not in names[one.name]]
    return found + [fault for node in _nodes(promql.parse(question)) for fault in _groups(node, names)]


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _groups(node: Any, names: Mapping[str, frozenset[str]]) -> list[str]:
    if not isinstance(node, promql.AggregateExpr) or node.modifier is None:
        return []
    below = [names.get(str(one.name), frozenset()) for one in _selectors(node.expr)]
    return [f"nothing below has a label {label}: {node}" for label in node.modifier.labels if not all(label in one for one in below)]


def unit(question: str) -> Unit:
    return _unit(promql.parse(question))


def _unit(node: Any) -> Unit:
    match type(node).__name__:
        case "VectorSelector":
            return _of(str(node.name))
        case "MatrixSelector":
            return _of(str(node.vector_selector.name))
        case "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            return _unit(node.expr)
        case "AggregateExpr":
            kind = str(node.op)
            assert kind in _SAME | {"count"}, f"{kind} isn't known here"
            return {"n": 1} if kind == "count" else _unit(node.expr)
        case "Call":
            return _called(node)
        case "BinaryExpr":
            return _of_two(node)
    raise AssertionError(f"{type(node).__name__} has no unit that is known here: {node}")


def _of(name: str) -> Unit:
    if name.startswith("eyas:slo_b"):  # budgets and burn rates
        return SHARE
    if name in _OTHERS:
        return _OTHERS[name]
    for part in ("_total", "_sum", "_bucket"):
        name = name.removesuffix(part) if name.removesuffix(part).endswith("_seconds") else name
    exponents = next(({base: 1} for suffix, base in _BY_NAME.items() if name.endswith(suffix)), None)
    return exponents or ({"n": 1} if name.startswith("nv_") else {"plain": 1})


def _called(node: Any) -> Unit:
    match node.func.name:
        case "rate":
            return _divided(_unit(node.args[0]), {"s": 1})
        case "histogram_quantile":
            return _without_time(_unit(node.args[1]))
    raise AssertionError(f"{node.func.name} isn't known here")


def _without_time(rate_of_buckets: Unit) -> Unit:
    """Buckets are counts, whose bounds have the unit of their name."""
    return _plain(Bag(rate_of_buckets) + Bag({"s": 1}))


def _of_two(node: Any) -> Unit:
    kind = str(node.op)
    if kind in ("and", "unless", ">", "<", ">=", "<=", "==", "!="):
        return _unit(node.lhs)
    if kind == "or":
        assert _unit(node.lhs) == _unit(node.rhs), f"one of two units: {node}"
        return _unit(node.lhs)
    assert kind == "/", f"{kind} isn't known here"
    if isinstance(node.rhs, promql.NumberLiteral):
        assert _unit(node.lhs) == {"us": 1} and node.rhs.val == 1e6, f"a number without a unit: {node}"
        return {"s": 1}
    return _divided(_unit(node.lhs), _unit(node.rhs))


def _divided(left: Unit, right: Unit) -> Unit:
    """What there is a thing of, or a share of things, isn't counted in things."""
    made = Bag(left)
    made.subtract(right)
    made["n"] = max(made["n"], 0)
    return _plain(made)


def _plain(exponents: Bag[str]) -> Unit:
    return {base: power for base, power in exponents.items() if power}
