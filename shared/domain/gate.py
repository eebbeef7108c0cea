"""Quality gates: conditions that a version must meet before deployment, each with a reason for users.

A gate has one of four verdicts. A value that was not measured, or whose interval contains the threshold, is inconclusive; a failed
measurement is an error. Only a pass lets a version through, or an inconclusive value that the spec or a person accepts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist
from typing import Literal

from shared.domain.metric import COUNTED, certainty, count_of, shared_with


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


CONFIDENCE = 0.9
"""Default confidence of gates that compare with another model."""


@dataclass(frozen=True)
class Gate:
    """Comparison of a metric with a bound, or with another model's value on the same holdout.

    With a `confidence` the gate passes only if the confidence bound clears the threshold. A value is inconclusive if its interval contains
    the threshold or it has fewer than `min_users`; `inconclusive` says whether such a value is accepted.
    """

    metric: str
    kind: Literal["min", "max", "better_than", "not_worse_than"]
    bound: float = 0.0
    against: str = ""
    margin: float = 0.0
    stage: Literal["evaluate", "refit", "verify"] = "evaluate"
    unit: str = ""
    confidence: float | None = None
    min_users: int = 0
    inconclusive: Literal["accept", "reject"] = "reject"

    @property
    def value_name(self) -> str:
        """Name of the published value that the gate judges."""
        return {"verify": self.metric, "refit": f"refit.{self.metric}"}.get(self.stage, f"candidate.{self.metric}")

    @property
    def other_name(self) -> str:
        """Name of the published value that the gate compares with."""
        return f"{'refit.' if self.stage == 'refit' else ''}{self.against}.{self.metric}"

    def compared_names(self, metrics: Mapping[str, float]) -> tuple[str, str]:
        """Returns the names of both values; uses the values on the cases that both models share, where those are published."""
        value, other = shared_with(self.value_name, self.against), shared_with(self.other_name, "candidate")
        return value if value in metrics else self.value_name, other if other in metrics else self.other_name

    def __str__(self) -> str:
        usual = CONFIDENCE if self.against else None
        sure = f" {_sure(self.confidence)}" if self.confidence and self.confidence != usual else ""
        if self.kind == "min":
            return f"{self.metric} at least {self.bound:g}{self.unit}{sure}"
        if self.kind == "max":
            return f"{self.metric} at most {self.bound:g}{self.unit}{sure}"
        words = self.kind.replace("_", " ")
        return f"{self.metric} {words} {self.against}" + (f" by {self.margin:.2%}" if self.margin else "") + sure


REFIT = Gate("hr@10", "not_worse_than", against="candidate", stage="refit", confidence=0.99, min_users=30)
"""Gate of every refit: fails if the refitted model is worse with this confidence, although it has learned the rows that it ranks."""


@dataclass(frozen=True)
class GateResult:
    gate: str
    verdict: Verdict
    reason: str
    accepted: str = ""
    """Who accepts the inconclusive result: a person, or `SPEC`."""


@dataclass(frozen=True)
class Silence:
    """Reasons for missing numbers, by the number's name or its owner: `candidate.hr@10{cold_users}`, `serving`."""

    missing: Mapping[str, str] = field(default_factory=dict)
    """Values that could not be measured."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Values whose measurement failed."""

    def about(self, name: str) -> tuple[Verdict, str | None]:
        whose = name.partition(".")[0]
        for verdict, reasons in ((Verdict.ERROR, self.broken), (Verdict.INCONCLUSIVE, self.missing)):
            why = reasons.get(name) or reasons.get(whose)
            if why:
                return verdict, why
        return Verdict.INCONCLUSIVE, None


SPEC = "the spec"
"""Accepts a measured value that is inconclusive, by `inconclusive: accept`."""


@dataclass(frozen=True)
class _Number:
    """Published value: name, label for users, and the number of users, calls or rows behind it, if known."""

    name: str
    label: str
    value: float
    count: int | None = None
    counted: str = "users"

    @property
    def sample(self) -> str:
        return "" if self.count is None else f"{self.count:,} {self.counted}"


class _Unknown(Exception):
    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def judge(gate: Gate, metrics: Mapping[str, float], serving: bool, silence: Silence = Silence()) -> GateResult:
    """Judges a gate. Comparisons with the serving version pass if nothing is `serving`; an unknown value never passes."""
    try:
        verdict, reason = _judged(gate, _GateFacts(metrics, silence), serving)
    except _Unknown as unknown:  # not measured, so the spec cannot accept it
        return GateResult(str(gate), unknown.verdict, str(unknown))
    if verdict is Verdict.INCONCLUSIVE and gate.inconclusive == "accept":
        return GateResult(str(gate), verdict, f"{reason}; accepted by the spec", SPEC)
    return GateResult(str(gate), verdict, reason)


def _judged(gate: Gate, book: _GateFacts, serving: bool) -> tuple[Verdict, str]:
    if gate.against == "serving" and not serving:
        return Verdict.PASS, "no version serves yet: nothing to compare with"
    if gate.kind in ("min", "max"):
        return _absolute(gate, book.number(gate.value_name, gate.metric), book)
    value_name, other_name = gate.compared_names(book.metrics)
    value, other = book.number(value_name, gate.metric), book.number(other_name, f"{gate.against}'s {gate.metric}")
    return _judge_refit(gate, value, other, book) if gate.stage == "refit" else _relative(gate, value, other, book)


def _absolute(gate: Gate, number: _Number, book: _GateFacts) -> tuple[Verdict, str]:
    upwards = gate.kind == "min"
    sentence, bound = f"{gate.metric} is {number.value:.4g}{gate.unit}", f"{gate.bound:g}{gate.unit}"
    basis = _joined(book.standard_error(certainty(number.name), "standard error"), number.sample)
    if few := _too_few(gate, number):
        return Verdict.INCONCLUSIVE, f"{sentence}{_in_brackets(basis)}: {few}"
    if gate.confidence is None:
        sentence += _in_brackets(basis)
        good = number.value >= gate.bound if upwards else number.value <= gate.bound
        sign = {(True, True): ">=", (True, False): "<", (False, True): "<=", (False, False): ">"}[upwards, good]
        return _verdict(good), f"{sentence} {sign} {bound}"
    low, high = _around(number.value, book.error(certainty(number.name), f"standard error of {gate.metric}"), gate.confidence)
    sentence += _in_brackets(_joined(f"{low:.4g} to {high:.4g}{gate.unit} {_sure(gate.confidence)}", basis))
    if low >= gate.bound if upwards else high <= gate.bound:
        return Verdict.PASS, f"{sentence} {'>=' if upwards else '<='} {bound}"
    if high < gate.bound if upwards else low > gate.bound:
        return Verdict.FAIL, f"{sentence} {'<' if upwards else '>'} {bound}"
    return Verdict.INCONCLUSIVE, f"{sentence}: uncertain whether it is at {'least' if upwards else 'most'} {bound}"


def _relative(gate: Gate, number: _Number, other: _Number, book: _GateFacts) -> tuple[Verdict, str]:
    better = gate.kind == "better_than"
    factor = 1 + gate.margin if better else 1 - gate.margin
    sentence = f"{gate.metric} is {number.value:.4g}, {gate.against}'s is {other.value:.4g}"
    change = f"{number.value / other.value - 1:+.1%}" if other.value else ""
    basis = _joined(book.standard_error(certainty(gate.value_name, gate.against), "standard error of the difference"), number.sample)
    if few := _too_few(gate, number):
        return Verdict.INCONCLUSIVE, f"{sentence}{_in_brackets(_joined(change, basis))}: {few}"
    if gate.confidence is None:
        good = number.value > other.value * factor if better else number.value >= other.value * factor
        return _verdict(good), sentence + _in_brackets(_joined(change, basis))
    low, high = _around(number.value - factor * other.value, _spread(gate, number, other, factor, book), gate.confidence)
    ends = " to ".join(_change(edge, factor, other.value) for edge in (low, high))
    sentence += _in_brackets(_joined(f"{change}{': ' if change else ''}{ends} {_sure(gate.confidence)}", basis))
    if low > 0 if better else low >= 0:
        return Verdict.PASS, sentence
    if high <= 0 if better else high < 0:
        return Verdict.FAIL, sentence
    return Verdict.INCONCLUSIVE, f"{sentence}: uncertain whether it is {_change(0.0, factor, other.value)} or more"


def _judge_refit(gate: Gate, number: _Number, other: _Number, book: _GateFacts) -> tuple[Verdict, str]:
    """Fails only if the refitted model, which has learned these rows, ranks them worse than the candidate, which has not."""
    key = certainty(gate.value_name, gate.against)
    sentence = f"{gate.metric} of the refitted model is {number.value:.4g}, {gate.against}'s is {other.value:.4g}"
    sentence += _in_brackets(_joined(book.standard_error(key, "standard error of the difference"), number.sample))
    if few := _too_few(gate, number):
        return Verdict.PASS, f"{sentence}: too few to judge, {few}"
    error = book.error(key, f"standard error of the difference to {gate.against}'s {gate.metric}")
    return _verdict(_around(number.value - other.value, error, gate.confidence or 0.0)[1] >= 0), sentence


def _spread(gate: Gate, number: _Number, other: _Number, factor: float, book: _GateFacts) -> float:
    """Standard error of the value minus `factor` times the other value. Both come from the same cases, so their errors correlate."""
    own, others = (book.error(certainty(side.name), f"standard error of {side.label}") for side in (number, other))
    between = book.error(certainty(gate.value_name, gate.against), f"standard error of the difference to {gate.against}'s {gate.metric}")
    together = (own * own + others * others - between * between) / 2
    return math.sqrt(max(own * own + factor * factor * others * others - 2 * factor * together, 0.0))


def _too_few(gate: Gate, number: _Number) -> str:
    if number.count is None or number.counted != "users" or number.count >= gate.min_users:
        return ""
    return f"min_users is {gate.min_users:,}"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _around(value: float, error: float, confidence: float) -> tuple[float, float]:
    """Returns the lower and the upper bound; each one-sided bound has the confidence."""
    reach = NormalDist().inv_cdf(confidence) * error
    return value - reach, value + reach


def _change(edge: float, factor: float, other: float) -> str:
    """Converts the end of a difference to `factor` times the other value to a relative change of that value."""
    return f"{edge / other + factor - 1:+.1%}" if other else f"{edge:+.4g}"


def _sure(confidence: float) -> str:
    return f"with {100 * confidence:.4g}% confidence"


def _verdict(good: bool) -> Verdict:
    return Verdict.PASS if good else Verdict.FAIL


@dataclass(frozen=True)
class _GateFacts:
    metrics: Mapping[str, float]
    silence: Silence

    def number(self, name: str, label: str) -> _Number:
        value = self.metrics.get(name)
        if value is None:
            verdict, why = self.silence.about(name)
            outcome = "could not be measured" if verdict is Verdict.ERROR else "was not measured"
            raise _Unknown(verdict, f"{label} {outcome}" + (f": {why}" if why else ""))
        if not math.isfinite(value):
            raise _Unknown(Verdict.ERROR, f"{label} is {value}, expected a finite number")
        for counted in COUNTED:
            if (count := self.metrics.get(count_of(name, counted))) is not None and math.isfinite(count):
                return _Number(name, label, value, int(count), counted)
        return _Number(name, label, value)

    def standard_error(self, name: str, label: str) -> str:
        """Text for the reason; empty if the error was not measured."""
        value = self.metrics.get(name, math.nan)
        return f"{label} {value:.2g}" if math.isfinite(value) else ""

    def error(self, name: str, label: str) -> float:
        value = self.number(name, label).value
        if value < 0:
            raise _Unknown(Verdict.ERROR, f"{label} is {value:.4g}, expected at least 0")
        return value
