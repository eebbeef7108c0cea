"""Parts of the spec's `model.train`: early stopping, target, learning rate and checkpoints."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from shared.contracts.quantities import Duration
from shared.contracts.strict import Strict

LookMetric = Literal["loss", "auc", "hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10"]
"""Metrics on held-out rows; only for `loss` is less better."""
SAMPLED: frozenset[LookMetric] = frozenset({"hr@10/99", "ndcg@10/99"})
FULL: frozenset[LookMetric] = frozenset({"hr@10", "ndcg@10"})
Schedule = Literal["constant", "plateau"] | tuple[Annotated[int, Field(ge=1)], ...]
_METRIC = (
    "`loss` and `auc` of the held-out rows; `hr@10/99`, `ndcg@10/99`: rank of one held-out positive of each of up to 2,000 users among 99 "
    "items without interactions of the user; `hr@10`, `ndcg@10`: rank among all such items, for at most 4,000,000 pairs of user and item."
)


class EarlyStop(Strict):
    """Ends training when it no longer improves."""

    metric: LookMetric = Field("auc", description=f"Metric that selects the best epoch, which is published. {_METRIC}")
    patience: int = Field(3, ge=1, le=1000, description="Number of looks without a better value before training ends.")
    min_change: float = Field(0, ge=0, le=1, description="Minimum improvement over the best value so far.")


class Target(Strict):
    """Value whose time to reach the report shows."""

    metric: LookMetric = Field("auc", description=_METRIC)
    value: float = Field(description="Value of the metric; the report shows the first epoch that reached it, and the seconds until then.")

    def reached(self, value: float) -> bool:
        return value <= self.value if self.metric == "loss" else value >= self.value


class Checkpoints(Strict):
    """Checkpoints from which a killed stage continues."""

    every: Duration = Field(timedelta(minutes=5), description="Time between checkpoints: the maximum of lost training.")
    steps: int | None = Field(None, ge=1, description="Number of steps after which a checkpoint is also written.")
