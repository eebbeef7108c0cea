"""The spec's `gates`: what a version must prove before it is registered."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from shared.contracts.entries import entry, written
from shared.contracts.quantities import Duration, Fraction, Memory
from shared.contracts.strict import Strict

METRIC = re.compile(r"(?:hr|ndcg)@[1-9]\d{0,2}(?:/[1-9]\d{0,3})?|recall@[1-9]\d{0,4}|auc")


class MetricGate(Strict):
    planned = frozenset({"slice"})

    metric: Annotated[
        str,
        written(METRIC.pattern, "a metric such as hr@10, ndcg@10, hr@10/99, recall@500 or auc"),
        Field(
            json_schema_extra={"pattern": f"^(?:{METRIC.pattern})$"},
            description="`hr@10`, `ndcg@10` (full catalogue), `hr@10/99` (99 negatives), `recall@500` (by `serve.retrieve`), `auc`.",
        ),
    ]
    min: float | None = Field(None, ge=0, le=1, description="The metric must reach this value.")
    better_than: Literal["popularity", "serving"] | None = Field(None, description="It must exceed that model's, on the same holdout.")
    not_worse_than: Literal["popularity", "serving"] | None = Field(None, description="It must reach that model's, less the margin.")
    by: Fraction = Field(0.0, ge=0, description="The relative margin of the comparison.")

    @model_validator(mode="after")
    def _one_condition(self) -> MetricGate:
        if sum(x is not None for x in (self.min, self.better_than, self.not_worse_than)) != 1:
            raise ValueError("a gate has exactly one of min, better_than, not_worse_than")
        return self


class ParityGate(Strict):
    """The served unit must answer as the model did in training: the largest difference on real rows."""

    parity: float = Field(gt=0, le=0.1, description="Largest difference between the real server's scores and training's, on real rows.")


_BATCH: Any = Field(None, ge=1, le=100_000, description="Rows in a call; the whole catalogue when absent.")


class LatencyGate(Strict):
    latency_p99: Duration = Field(description="The 99th percentile of one call on the real server.")
    batch: int | None = _BATCH


class MedianGate(Strict):
    latency_p50: Duration = Field(description="The median of one call on the real server.")
    batch: int | None = _BATCH


class ThroughputGate(Strict):
    throughput: float = Field(gt=0, le=1e12, description="Rows a second on the real server, asked by one caller: at least so many.")
    batch: int | None = _BATCH


class MemoryGate(Strict):
    memory: Memory = Field(
        description="What the version adds to the real server's resident memory, its share of the backend's own included."
    )


ServingGate = LatencyGate | MedianGate | ThroughputGate
_GATES: dict[str, type[Strict]] = {
    "metric": MetricGate,
    "parity": ParityGate,
    "latency_p99": LatencyGate,
    "latency_p50": MedianGate,
    "throughput": ThroughputGate,
    "memory": MemoryGate,
}


Gate = Annotated[
    MetricGate | ParityGate | LatencyGate | MedianGate | ThroughputGate | MemoryGate,
    BeforeValidator(entry("gate", _GATES, frozenset(), "{metric: hr@10, better_than: popularity}")),
]
