"""The spec's `gates`: conditions that a version must meet before it is registered."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from shared.contracts.entries import entry, written
from shared.contracts.quantities import Duration, Fraction, Memory
from shared.contracts.strict import Strict, unknown_name
from shared.domain.case_slices import COUNTS, parse_count_tests, write_count_tests
from shared.domain.errors import Invalid
from shared.domain.gate import CONFIDENCE
from shared.domain.metric import PATTERN, RANKING, SLICES, Metric, parse_metric


def _known_slice(name: str) -> str:
    if name in SLICES:
        return name
    if re.fullmatch(r"\w+", name):
        raise unknown_name("slice", name, SLICES)
    try:
        return write_count_tests(parse_count_tests(name))
    except Invalid as error:
        raise ValueError(str(error)) from None


Confidence = Annotated[Fraction, Field(ge=0.5, le=0.999)]
Inconclusive = Literal["accept", "reject"]


Rival = Literal["popularity", "baseline", "serving"]
"""Models whose metrics are measured beside the candidate's: `baseline` is the spec's `model.baseline`."""


class Uncertain(Strict):
    """Common settings of gates on estimated values: the confidence, and the result of an inconclusive value."""

    confidence: Confidence | None = Field(
        None,
        exclude_if=lambda sure: sure is None,
        description="A gate passes only if the confidence bound of its value clears the threshold; a value whose interval contains the "
        f"threshold is inconclusive. Absent: {CONFIDENCE:.0%} for comparisons with another model, else 50%. At 50% the value decides.",
    )
    inconclusive: Inconclusive | None = Field(
        None,
        exclude_if=lambda policy: policy is None,
        description="Result of an inconclusive gate: the run continues (`accept`) or is rejected (`reject`). Absent: `accept` for "
        "`not_worse_than: serving`, since the canary decides next; `reject` for others. A value that was not measured is never accepted.",
    )
    min_users: int = Field(
        100, ge=1, exclude_if=lambda users: users == 100, description="Minimum number of users; a value over fewer users is inconclusive."
    )

    @property
    def compares(self) -> bool:
        return bool(getattr(self, "better_than", None) or getattr(self, "not_worse_than", None))

    @property
    def sure(self) -> float | None:
        """Required confidence; None if the value alone decides."""
        confidence = self.confidence if self.confidence is not None else CONFIDENCE if self.compares else 0.5
        return confidence if confidence > 0.5 else None

    @property
    def policy(self) -> Inconclusive:
        return self.inconclusive or ("accept" if getattr(self, "not_worse_than", None) == "serving" else "reject")


class MetricGate(Uncertain):
    metric: Annotated[
        str,
        written(PATTERN, "a metric such as hr@10, ndcg@10, hr@10/99, recall@500 or auc"),
        Field(
            json_schema_extra={"pattern": f"^(?:{PATTERN})$"},
            description="`hr@10`, `ndcg@10` (full catalogue), `hr@10/99` (99 negatives), `recall@500` (by `serve.retrieve`), `auc`.",
        ),
    ]
    slice: (
        Annotated[str, AfterValidator(_known_slice), WithJsonSchema({"type": "string", "examples": [*SLICES, "user_history<=5"]})] | None
    ) = Field(
        None,
        exclude_if=lambda name: name is None,
        description="Part of the cases: "
        + "; ".join(f"`{name}`: {meaning}" for name, meaning in SLICES.items())
        + ". Or comparisons with whole numbers, joined by `and`, such as `user_history<=5`: "
        + "; ".join(f"`{name}`: {meaning}" for name, meaning in COUNTS.items())
        + ".",
    )
    min: float | None = Field(None, ge=0, le=1, description="Minimum value of the metric.")
    better_than: Rival | None = Field(None, description="Model whose value must be exceeded; `baseline`: the spec's `model.baseline`.")
    not_worse_than: Rival | None = Field(None, description="Model whose value, less the margin, must be reached.")
    by: Fraction = Field(0.0, ge=0, description="Relative margin of the comparison.")

    @model_validator(mode="after")
    def _check_conditions(self) -> MetricGate:
        if sum(x is not None for x in (self.min, self.better_than, self.not_worse_than)) != 1:
            raise ValueError("a gate needs exactly one of min, better_than, not_worse_than")
        if self.slice is not None and self.named.kind not in RANKING:
            raise ValueError(f"slice: '{self.metric}' is not measured per slice; use {', '.join(f'{kind}@10' for kind in RANKING)}")
        return self

    @property
    def named(self) -> Metric:
        return replace(parse_metric(self.metric), slice=self.slice)


class OffPolicyGate(Uncertain):
    """Expected hit rate of the candidate's answers, estimated from the log of explored answers before any user sees the candidate."""

    off_policy: Literal["ips", "snips", "dr"] = Field(
        description="Estimator of the online hit rate from logged answers and their propensities. `ips`: each positive is weighted by the "
        "ratio of propensities. `snips`: the same, normalised by the sum of the weights. `dr`: doubly robust; a reward model, corrected "
        "by weighted positives."
    )
    better_than: Literal["serving"] | None = Field(None, description="The estimate must exceed the serving version's own hit rate.")
    not_worse_than: Literal["serving"] | None = Field(None, description="The estimate must reach that rate, less the margin.")
    by: Fraction = Field(0.0, ge=0, description="Relative margin of the comparison.")

    @model_validator(mode="after")
    def _check_conditions(self) -> OffPolicyGate:
        if (self.better_than is None) == (self.not_worse_than is None):
            raise ValueError("an off_policy gate needs exactly one of better_than, not_worse_than")
        return self

    @property
    def named(self) -> str:
        return foretold(self.off_policy)


def foretold(estimator: str) -> str:
    """Returns the name of the published estimate."""
    return f"hit_rate.{estimator}"


class ForgottenGate(Uncertain):
    """A warm run must keep what its parent knew. Does not apply to full runs."""

    forgotten: Annotated[Fraction, Field(gt=0, lt=1)] = Field(
        description="Maximum relative loss of a warm run's hr@10/99 against its parent, on positives that both have held out."
    )


class ParityGate(Strict):
    """The served unit must give the same scores as the model in training; limits the largest difference on real rows."""

    parity: float = Field(gt=0, le=0.1, description="Maximum difference between scores of the real server and of training, on real rows.")


_BATCH: Any = Field(None, ge=1, le=100_000, description="Rows per call; the whole catalogue if absent.")


class LatencyGate(Strict):
    latency_p99: Duration = Field(description="Maximum 99th percentile of the time of one call on the real server.")
    batch: int | None = _BATCH


class MedianGate(Strict):
    latency_p50: Duration = Field(description="Maximum median of the time of one call on the real server.")
    batch: int | None = _BATCH


class ThroughputGate(Strict):
    throughput: float = Field(gt=0, le=1e12, description="Minimum rows per second on the real server, with one caller.")
    batch: int | None = _BATCH


class MemoryGate(Strict):
    memory: Memory = Field(
        description="Maximum resident memory that the version adds to the real server, including its share of the backend."
    )


class SizeGate(Strict):
    size: Memory = Field(description="Maximum size of the model files that a server loads, such as 200Mi.")


_GATES: dict[str, type[Strict]] = {
    "metric": MetricGate,
    "off_policy": OffPolicyGate,
    "forgotten": ForgottenGate,
    "parity": ParityGate,
    "latency_p99": LatencyGate,
    "latency_p50": MedianGate,
    "throughput": ThroughputGate,
    "memory": MemoryGate,
    "size": SizeGate,
}


Gate = Annotated[
    MetricGate | OffPolicyGate | ForgottenGate | ParityGate | LatencyGate | MedianGate | ThroughputGate | MemoryGate | SizeGate,
    BeforeValidator(entry("gate", _GATES, frozenset(), "{metric: hr@10, better_than: popularity}")),
]
