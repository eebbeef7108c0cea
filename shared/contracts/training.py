"""Parts of the spec's `model.train`: early stopping, target and checkpoints."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from shared.contracts.quantities import Duration
from shared.contracts.strict import Strict

LookMetric = Literal["loss", "auc", "hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10"]
"""Metrics on held-out rows; only for `loss` is less better."""
SAMPLED: frozenset[LookMetric] = frozenset({"hr@10/99", "ndcg@10/99"})
FULL: frozenset[LookMetric] = frozenset({"hr@10", "ndcg@10"})
_METRIC = (
    "`loss` and `auc` of the held-out rows; `hr@10/99`, `ndcg@10/99`: how high a held-out like of each of up to 2,000 users ranks among 99 "
    "items that this user never met; `hr@10`, `ndcg@10`: among all such items, for fewer users: 4,000,000 pairs of user and item at most."
)


class EarlyStop(Strict):
    """Ends training when it no longer improves."""

    metric: LookMetric = Field("auc", description=f"By which epochs are compared; the best one is published. {_METRIC}")
    patience: int = Field(3, ge=1, le=1000, description="Looks without a better value before training ends.")
    min_change: float = Field(0, ge=0, le=1, description="By how much a value must be better than the best so far to count.")


class Target(Strict):
    """Value whose time to reach the report shows."""

    metric: LookMetric = Field("auc", description=_METRIC)
    value: float = Field(description="The report says in which epoch it was reached first, and after how many seconds.")

    def reached(self, value: float) -> bool:
        return value <= self.value if self.metric == "loss" else value >= self.value


class Checkpoints(Strict):
    """Checkpoints from which a killed stage continues."""

    every: Duration = Field(timedelta(minutes=5), description="How much training may be lost at most.")
    steps: int | None = Field(None, ge=1, description="Also after so many steps.")
