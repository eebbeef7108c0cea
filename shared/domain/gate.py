"""Quality gates: what a version must prove before it may be deployed, each with a reason that a person can read.

A verdict is one of four. What was not measured, or not surely enough, is inconclusive; what went wrong while it was measured is an error.
Neither is a pass, and nothing but a pass lets a version through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist
from typing import Literal

from shared.domain.metric import certainty


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


@dataclass(frozen=True)
class Gate:
    """One comparison of a metric with a bound, or with another model's value of it on the same holdout.

    With a `confidence` it passes only if what it asks for is so sure; what could be either way is inconclusive.
    """

    metric: str
    kind: Literal["min", "max", "better_than", "not_worse_than"]
    bound: float = 0.0
    against: str = ""
    margin: float = 0.0
    stage: Literal["evaluate", "verify"] = "evaluate"
    unit: str = ""
    confidence: float | None = None

    def __str__(self) -> str:
        sure = f" {_sure(self.confidence)}" if self.confidence else ""
        if self.kind == "min":
            return f"{self.metric} at least {self.bound:g}{self.unit}{sure}"
        if self.kind == "max":
            return f"{self.metric} at most {self.bound:g}{self.unit}{sure}"
        words = self.kind.replace("_", " ")
        return f"{self.metric} {words} {self.against}" + (f" by {self.margin:.2%}" if self.margin else "") + sure


@dataclass(frozen=True)
class GateResult:
    gate: str
    verdict: Verdict
    reason: str
    accepted: str = ""
    """Who answers for it, though it is inconclusive."""


@dataclass(frozen=True)
class Silence:
    """Why there is no number, by the name that it would have, or by whose it would be: `candidate.hr@10{cold_users}`, `serving`."""

    missing: Mapping[str, str] = field(default_factory=dict)
    """What couldn't be measured as things are."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """What went wrong."""

    def about(self, name: str) -> tuple[Verdict, str | None]:
        whose = name.partition(".")[0]
        for verdict, said in ((Verdict.ERROR, self.broken), (Verdict.INCONCLUSIVE, self.missing)):
            why = said.get(name) or said.get(whose)
            if why:
                return verdict, why
        return Verdict.INCONCLUSIVE, None


@dataclass(frozen=True)
class _Number:
    """A value under the name by which it is published, in words, and how sure it is."""

    name: str
    said: str
    value: float


class _Unknown(Exception):
    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def judge(gate: Gate, metrics: Mapping[str, float], serving: bool, silence: Silence = Silence()) -> GateResult:
    """With nothing `serving` there is nothing to be worse than; else what isn't known never passes."""
    try:
        verdict, reason = _judged(gate, _Book(metrics, silence), serving)
    except _Unknown as unknown:
        verdict, reason = unknown.verdict, str(unknown)
    return GateResult(str(gate), verdict, reason)


def _judged(gate: Gate, book: _Book, serving: bool) -> tuple[Verdict, str]:
    if gate.against == "serving" and not serving:
        return Verdict.PASS, "nothing serves yet, so there is nothing to compare with"
    value = book.number(gate.metric if gate.stage == "verify" else f"candidate.{gate.metric}", gate.metric)
    if gate.kind in ("min", "max"):
        return _absolute(gate, value, book)
    return _relative(gate, value, book.number(f"{gate.against}.{gate.metric}", f"{gate.against}'s {gate.metric}"), book)


def _absolute(gate: Gate, found: _Number, book: _Book) -> tuple[Verdict, str]:
    upwards = gate.kind == "min"
    said, bound = f"{gate.metric} is {found.value:.4g}{gate.unit}", f"{gate.bound:g}{gate.unit}"
    if gate.confidence is None:
        good = found.value >= gate.bound if upwards else found.value <= gate.bound
        sign = {(True, True): ">=", (True, False): "<", (False, True): "<=", (False, False): ">"}[upwards, good]
        return _verdict(good), f"{said} {sign} {bound}"
    low, high = _around(found.value, book.error(certainty(found.name), f"how sure {gate.metric} is"), gate.confidence)
    said += f" ({low:.4g} to {high:.4g}{gate.unit} {_sure(gate.confidence)})"
    if low >= gate.bound if upwards else high <= gate.bound:
        return Verdict.PASS, f"{said} {'>=' if upwards else '<='} {bound}"
    if high < gate.bound if upwards else low > gate.bound:
        return Verdict.FAIL, f"{said} {'<' if upwards else '>'} {bound}"
    return Verdict.INCONCLUSIVE, f"{said}: whether it is at {'least' if upwards else 'most'} {bound} can't be told"


def _relative(gate: Gate, found: _Number, other: _Number, book: _Book) -> tuple[Verdict, str]:
    better = gate.kind == "better_than"
    factor = 1 + gate.margin if better else 1 - gate.margin
    said = f"{gate.metric} is {found.value:.4g}, {gate.against}'s is {other.value:.4g}"
    change = f"{found.value / other.value - 1:+.1%}" if other.value else ""
    if gate.confidence is None:
        good = found.value > other.value * factor if better else found.value >= other.value * factor
        return _verdict(good), said + (f" ({change})" if change else "")
    low, high = _around(found.value - factor * other.value, _spread(gate, found, other, factor, book), gate.confidence)
    ends = " to ".join(_change(edge, factor, other.value) for edge in (low, high))
    said += f" ({change}{': ' if change else ''}{ends} {_sure(gate.confidence)})"
    if low > 0 if better else low >= 0:
        return Verdict.PASS, said
    if high <= 0 if better else high < 0:
        return Verdict.FAIL, said
    return Verdict.INCONCLUSIVE, f"{said}: whether it is {_change(0.0, factor, other.value)} or more can't be told"


def _spread(gate: Gate, found: _Number, other: _Number, factor: float, book: _Book) -> float:
    """The standard error of one less `factor` times the other: both were measured on the same cases, so they err together."""
    own, others = (book.error(certainty(one.name), f"how sure {one.said} is") for one in (found, other))
    between = book.error(certainty(found.name, gate.against), f"how sure the difference to {gate.against}'s {gate.metric} is")
    together = (own * own + others * others - between * between) / 2
    return math.sqrt(max(own * own + factor * factor * others * others - 2 * factor * together, 0.0))


def _around(value: float, error: float, confidence: float) -> tuple[float, float]:
    """So sure is each of both ends, alone."""
    reach = NormalDist().inv_cdf(confidence) * error
    return value - reach, value + reach


def _change(edge: float, factor: float, other: float) -> str:
    """The end of a difference to `factor` times the other's value, as a change of that value."""
    return f"{edge / other + factor - 1:+.1%}" if other else f"{edge:+.4g}"


def _sure(confidence: float) -> str:
    return f"with {100 * confidence:.4g}% confidence"


def _verdict(good: bool) -> Verdict:
    return Verdict.PASS if good else Verdict.FAIL


@dataclass(frozen=True)
class _Book:
    metrics: Mapping[str, float]
    silence: Silence

    def number(self, name: str, said: str) -> _Number:
        value = self.metrics.get(name)
        if value is None:
            verdict, why = self.silence.about(name)
            told = "couldn't be measured" if verdict is Verdict.ERROR else "was not measured"
            raise _Unknown(verdict, f"{said} {told}" + (f": {why}" if why else ""))
        if not math.isfinite(value):
            raise _Unknown(Verdict.ERROR, f"{said} came out as {value}, which is no number")
        return _Number(name, said, value)

    def error(self, name: str, said: str) -> float:
        value = self.number(name, said).value
        if value < 0:
            raise _Unknown(Verdict.ERROR, f"{said} came out as {value:.4g}, which is no standard error")
        return value
