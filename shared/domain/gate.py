"""Quality gates: what a version must prove before it may be deployed, each with a reason that a person can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


@dataclass(frozen=True)
class Gate:
    """One comparison of a metric with a bound, or with another model's value of it on the same holdout."""

    metric: str
    kind: Literal["min", "max", "better_than", "not_worse_than"]
    bound: float = 0.0
    against: str = ""
    margin: float = 0.0
    stage: Literal["evaluate", "verify"] = "evaluate"
    unit: str = ""

    def __str__(self) -> str:
        if self.kind == "min":
            return f"{self.metric} at least {self.bound:g}{self.unit}"
        if self.kind == "max":
            return f"{self.metric} at most {self.bound:g}{self.unit}"
        words = self.kind.replace("_", " ")
        return f"{self.metric} {words} {self.against}" + (f" by {self.margin:.2%}" if self.margin else "")


@dataclass(frozen=True)
class GateResult:
    gate: str
    verdict: Verdict
    reason: str


def judge(gate: Gate, metrics: Mapping[str, float], serving: bool) -> GateResult:
    """A metric that wasn't measured is inconclusive, never a pass; with nothing `serving` there is nothing to be worse than."""
    subject = gate.metric if gate.stage == "verify" else f"candidate.{gate.metric}"
    value = metrics.get(subject)
    if value is None:
        return GateResult(str(gate), Verdict.INCONCLUSIVE, f"{gate.metric} was not measured")
    if gate.kind in ("min", "max"):
        good = value >= gate.bound if gate.kind == "min" else value <= gate.bound
        sign = {("min", True): ">=", ("min", False): "<", ("max", True): "<=", ("max", False): ">"}[gate.kind, good]
        return GateResult(str(gate), _verdict(good), f"{gate.metric} is {value:.4g}{gate.unit} {sign} {gate.bound:g}{gate.unit}")
    if gate.against == "serving" and not serving:
        return GateResult(str(gate), Verdict.PASS, "nothing serves yet, so there is nothing to compare with")
    return _compare(gate, value, metrics.get(f"{gate.against}.{gate.metric}"))


def _compare(gate: Gate, value: float, other: float | None) -> GateResult:
    if other is None:
        return GateResult(str(gate), Verdict.INCONCLUSIVE, f"{gate.against}'s {gate.metric} was not measured")
    factor = 1 + gate.margin if gate.kind == "better_than" else 1 - gate.margin
    good = value > other * factor if gate.kind == "better_than" else value >= other * factor
    change = f" ({value / other - 1:+.1%})" if other else ""
    return GateResult(str(gate), _verdict(good), f"{gate.metric} is {value:.4g}, {gate.against}'s is {other:.4g}{change}")


def _verdict(good: bool) -> Verdict:
    return Verdict.PASS if good else Verdict.FAIL
